"""Settings: what can be set, where it is read from, and why a value is what it is. Surfaces and `context` use these names."""

from neve.settings.catalog import CatalogSettings, CatalogType, StorageSettings
from neve.settings.effective import Loaded
from neve.settings.explain import Row
from neve.settings.load import load_settings, shipped_profiles
from neve.settings.model import (
    CacheSettings,
    CostSettings,
    InspectSettings,
    LogSettings,
    Settings,
    SparkSettings,
    StateSettings,
)
from neve.settings.origins import Origin, OriginKind
from neve.settings.secrets import Secret, Text
from neve.settings.service import ServiceSettings, TargetSettings

__all__ = [
    "CacheSettings",
    "CatalogSettings",
    "CatalogType",
    "CostSettings",
    "InspectSettings",
    "Loaded",
    "LogSettings",
    "Origin",
    "OriginKind",
    "Row",
    "Secret",
    "ServiceSettings",
    "Settings",
    "SparkSettings",
    "StateSettings",
    "StorageSettings",
    "TargetSettings",
    "Text",
    "load_settings",
    "shipped_profiles",
]
