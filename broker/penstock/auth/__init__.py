"""Who may do what: users, their passwords and permissions, decided from values alone. This room reads no file, clock or
socket; whoever holds the users performs what is decided here."""

from penstock.auth.credentials import CredentialCache
from penstock.auth.passwords import hash_password, verify_password
from penstock.auth.people import Allowance, Person, UndecidedError
from penstock.auth.permissions import Permission
from penstock.auth.tokens import TokenRules, Visitor, visitor_of
from penstock.auth.topics import TopicPermission
from penstock.auth.users import Tag, User, Users

__all__ = [
    "Allowance",
    "CredentialCache",
    "Permission",
    "Person",
    "Tag",
    "TokenRules",
    "TopicPermission",
    "UndecidedError",
    "User",
    "Users",
    "Visitor",
    "hash_password",
    "verify_password",
    "visitor_of",
]
