"""A busy machine must not fail a property: no deadline for single examples."""

from hypothesis import settings

settings.register_profile("plan", deadline=None)
settings.load_profile("plan")
