"""The parameters that several commands share, with their help."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from cyclopts import Parameter

DirectoryPath: TypeAlias = Annotated[str, Parameter(help="The data directory that holds the spaces.")]
SpaceName: TypeAlias = Annotated[str, Parameter(help="The name of the space, as `headwater spaces` lists it.")]
Json: TypeAlias = Annotated[bool, Parameter(help="Print one JSON document instead of text.", negative=())]
BranchName: TypeAlias = Annotated[str, Parameter(help="The branch to look at.")]
