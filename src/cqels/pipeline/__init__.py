"""The stages that the embedded runtime and Spark have in common: sources, lift, engine instance, sinks."""
