"""PyFlink's helpers for Java objects. There are no Java objects here, so all of them raise ProgramError."""

from __future__ import annotations

from typing import Any

from flinkish.common.configuration import Configuration
from flinkish.common.no_effect import no_java_object, supply_names
from flinkish.common.typeinfo import TypeInformation

__all__ = [
    "convert_to_python_obj",
    "create_hadoop_configuration",
    "create_java_properties",
    "pickled_bytes_to_python_obj",
]

supply_names(__name__, "common", "common.typeinfo")


def create_hadoop_configuration(config: Configuration) -> object:
    """Raises ProgramError: there is no Java object. Set the keys ``spark.hadoop.*`` instead."""
    no_java_object("create_hadoop_configuration()")


def create_java_properties(config: Configuration) -> object:
    """Raises ProgramError: there is no Java object. Use ``config.to_dict()`` instead."""
    no_java_object("create_java_properties()")


def convert_to_python_obj(data: Any, type_info: TypeInformation) -> object:
    """Raises ProgramError: records are Python objects already."""
    no_java_object("convert_to_python_obj()")


def pickled_bytes_to_python_obj(data: Any, type_info: TypeInformation) -> object:
    """Raises ProgramError: records are Python objects already."""
    no_java_object("pickled_bytes_to_python_obj()")
