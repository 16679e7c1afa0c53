"""The report of a program as one page of HTML that needs nothing else."""

from .page import Extras, html_page

__all__ = ["Extras", "html_page"]
