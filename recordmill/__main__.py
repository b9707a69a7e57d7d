"""`python -m recordmill`, the same as the command `recordmill`."""

import sys

from recordmill.pipelines.cli import main

sys.exit(main())
