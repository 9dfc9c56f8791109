//! Why a route or a message was refused.

use penstock_wire::WireError;
use thiserror::Error;

/// Why a route was refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RoutingError {
    #[error("exchange '{0}' is not there; declare it before routes from or to it")]
    NoSuchExchange(String),
    #[error("queue '{0}' is not there; declare it before routes to it")]
    NoSuchQueue(String),
    #[error("the default exchange leads to every queue by its name and takes no other routes; use another exchange")]
    DefaultExchange,
    #[error("the arguments of a route cannot be read: {0}")]
    Unreadable(#[from] WireError),
    #[error("x-match is '{0}'; it has to be all, any, all-with-x or any-with-x")]
    UnknownMatch(String),
}

/// A message names an exchange that does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the exchange is not there; declare it before publishing to it")]
pub struct NoSuchExchange;
