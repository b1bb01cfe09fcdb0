"""Django's settings, from the environment (see `scheduler_project.env` for the variables and what they allow)."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import environ
from django.core.exceptions import ImproperlyConfigured

from engine.errors import ConfigError
from scheduler_project.env import WebConfig
from scheduler_project.secret import Secret
from scheduler_project.signing import FallbackKeys, SigningKey

BASE_DIR = Path(__file__).resolve().parent.parent
WEB = WebConfig.from_env(os.environ)
STORAGE_PATH = WEB.storage_path

# ---- what runs -------------------------------------------------------------------------------------------------------

DEBUG = WEB.development
INSTALLED_APPS = [
    "scheduler_project.admin_config.SchedulerAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "rest_framework",
    "scheduler_project",
    "channels_app",
    "cluster_app",
]
MIDDLEWARE = [
    "scheduler_project.edge.EdgeMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "scheduler_project.auth.CallerMiddleware",
    "scheduler_project.admin_messages.AdminMessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
ROOT_URLCONF = "scheduler_project.urls"
WSGI_APPLICATION = "scheduler_project.wsgi.application"
# Every path of the API is served with and without a trailing slash, so nothing is redirected.
APPEND_SLASH = False
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "scheduler_project" / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

# ---- databases -------------------------------------------------------------------------------------------------------


def _database_from(url: str) -> dict[str, Any]:
    """DATABASE_URL as Django takes it; no refusal repeats the URL, which holds a password."""
    scheme = url.partition(":")[0]
    if scheme not in ("sqlite", "postgres", "postgresql"):
        raise ConfigError(
            "DATABASE_URL cannot be used: allowed are sqlite:///path and postgres://user:password@host/name"
        )
    if scheme != "sqlite" and not (find_spec("psycopg") or find_spec("psycopg2")):
        raise ConfigError("DATABASE_URL names PostgreSQL, whose driver is not installed: pip install 'psycopg[binary]'")
    try:
        config: dict[str, Any] = environ.Env.db_url_config(url)  # type: ignore[no-untyped-call]
    except (ValueError, TypeError, ImproperlyConfigured) as error:
        raise ConfigError("DATABASE_URL cannot be read: percent-encode special characters of its parts") from error
    return config


def _own_database() -> dict[str, Any]:
    """Django's own tables: users, admin log. Node-local and disposable unless DATABASE_URL says otherwise."""
    url = Secret("DATABASE_URL").value()
    if url:
        return _database_from(url)
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": str(STORAGE_PATH / "django.db"),
        "OPTIONS": {
            "timeout": 5,
            "transaction_mode": "IMMEDIATE",
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA temp_store=MEMORY",
        },
        "TEST": {"NAME": ":memory:"},
    }


DATABASES = {
    "default": _own_database(),
    "state": {"ENGINE": "scheduler_project.replica", "NAME": str(STORAGE_PATH / "state" / "state.db")},
}
DATABASE_ROUTERS = ["scheduler_project.replica.router.ReplicaRouter"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# ---- security --------------------------------------------------------------------------------------------------------

_SECRET_KEYS = Secret("SECRET_KEY")
SECRET_KEY = SigningKey(_SECRET_KEYS)
SECRET_KEY_FALLBACKS = FallbackKeys(_SECRET_KEYS)
ALLOWED_HOSTS = list(WEB.allowed_hosts)
CSRF_TRUSTED_ORIGINS = list(WEB.csrf_trusted_origins)
# Whether cookies are marked secure follows the scheme of each request (`scheduler_project.edge`).
SESSION_ENGINE = "django.contrib.sessions.backends.signed_cookies"
SESSION_COOKIE_NAME = "event_scheduler_session"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_AGE = 12 * 3600
CSRF_COOKIE_NAME = "event_scheduler_csrf"
CSRF_COOKIE_SAMESITE = "Lax"
X_FRAME_OPTIONS = "DENY"
SECURE_REFERRER_POLICY = "same-origin"
LOGIN_URL = "admin:login"
SILENCED_SYSTEM_CHECKS = [
    "security.W004",  # HSTS binds a whole host name, which is for whoever owns the name (a proxy) to decide.
    "security.W008",  # No redirect to HTTPS: probes and scrapers speak plain HTTP to the same port.
    "security.W011",  # Session cookies are marked secure when the request came by HTTPS.
    "security.W016",  # The CSRF cookie, too.
]
MESSAGE_STORAGE = "django.contrib.messages.storage.cookie.CookieStorage"

# ---- REST ------------------------------------------------------------------------------------------------------------

REST_FRAMEWORK = {
    "DEFAULT_RENDERER_CLASSES": ["scheduler_project.json_body.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": [
        "scheduler_project.json_body.StrictJSONParser",
        "scheduler_project.json_body.MergePatchParser",
    ],
    "DEFAULT_CONTENT_NEGOTIATION_CLASS": "scheduler_project.json_body.AlwaysJSON",
    "DEFAULT_AUTHENTICATION_CLASSES": ["scheduler_project.auth.CallerAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["scheduler_project.auth.RolePermission"],
    "EXCEPTION_HANDLER": "scheduler_project.problems.exception_handler",
    "UNAUTHENTICATED_USER": None,
}

# ---- the rest --------------------------------------------------------------------------------------------------------

LANGUAGE_CODE = "en"
TIME_ZONE = "UTC"
USE_I18N = False
USE_TZ = True
STATIC_URL = "/static/"
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = False
# Whoever runs us says where the log goes: `scheduler_project.logs.configure`.
LOGGING_CONFIG = None
