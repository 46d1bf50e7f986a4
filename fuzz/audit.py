"""`python -m fuzz.audit PIP_AUDIT CONSTRAINTS`: known vulnerabilities of the versions that fedquilt is tested with.

pip-audit asks a vulnerability service over the internet. Where it cannot, it says of each package that it was not found, and
ends well; here that is status 3, and a sentence that nothing was audited.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

FINE, FOUND, NOT_AUDITED = 0, 1, 3


def main(arguments: Sequence[str]) -> int:
    """Audit the pinned versions in a constraints file."""
    tool, constraints = arguments
    asked = [tool, "-r", constraints, "--no-deps", "--disable-pip", "--format", "json", "--progress-spinner", "off"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        why = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        print(f"Nothing was audited: pip-audit ended with status {done.returncode} ({why}).", file=sys.stderr)
        return NOT_AUDITED
    return report(packages)


def report(packages: Sequence[dict[str, Any]]) -> int:
    """Print what is known of each package, and how many could be asked for."""
    audited = [package for package in packages if "vulns" in package]
    vulnerable = [package for package in audited if package["vulns"]]
    for package in vulnerable:
        for each in package["vulns"]:
            fixed = ", ".join(each.get("fix_versions") or []) or "no version"
            print(f"{package['name']} {package['version']}: {each['id']}, fixed in {fixed}")
    if not audited:
        print(
            f"Nothing was audited: none of {len(packages)} packages could be asked for (no internet, or a mirror without "
            "vulnerabilities); run it where https://pypi.org can be reached.",
            file=sys.stderr,
        )
        return NOT_AUDITED
    print(f"{len(audited)} of {len(packages)} packages audited, {len(vulnerable)} with known vulnerabilities.")
    return FOUND if vulnerable else FINE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
