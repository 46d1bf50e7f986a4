"""`python -m fedquilt.federation` prints where the Flower app is that `flwr run` takes."""

from fedquilt.federation.local.rehearsal import app_folder

print(app_folder())
