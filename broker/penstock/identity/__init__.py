"""Principals and their permissions: users, passwords, tokens, certificates.

Decisions are made from values alone; `sign_in`, `http_backend` and `token_keys` ask other servers. No module here reads
or writes a file.
"""

from penstock.identity.credentials import CredentialCache
from penstock.identity.identities import Allowance, Identity, UndecidedError
from penstock.identity.passwords import hash_password, verify_password
from penstock.identity.permissions import Permission
from penstock.identity.tokens import TokenRules, TokenUser, token_user_of
from penstock.identity.topics import TopicPermission
from penstock.identity.users import Tag, User, Users

__all__ = [
    "Allowance",
    "CredentialCache",
    "Identity",
    "Permission",
    "Tag",
    "TokenRules",
    "TokenUser",
    "TopicPermission",
    "UndecidedError",
    "User",
    "Users",
    "hash_password",
    "token_user_of",
    "verify_password",
]
