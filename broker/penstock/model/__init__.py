"""Types that all packages share: names, argument values, records of a vhost, errors. It imports no other package."""
