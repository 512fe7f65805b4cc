from __future__ import annotations

import json
from pathlib import Path

import pytest

from neve.errors import SettingsError
from neve.settings import Secret, Text, load_settings
from neve.settings.secrets import is_secret_key
from tests.builders.settings_files import Load

CURE = "write a reference, ${env:NAME} or ${file:PATH}, in its place"


@pytest.mark.parametrize("written", ["{env: TOKEN}", '"${env:TOKEN}"', "{file: token.txt}", '"${file:token.txt}"'])
def test_reads_a_secret_by_reference(load: Load, place: Path, written: str) -> None:
    (place / "token.txt").write_text("s3cr3t\n")
    loaded = load(f"catalogs: {{lake: {{type: rest, uri: http://x, token: {written}}}}}")
    token = loaded.settings.catalogs["lake"].token
    assert isinstance(token, Secret)
    assert token.reveal({"TOKEN": "s3cr3t"}) == "s3cr3t"


def test_never_prints_the_value(load: Load) -> None:
    environ = {"NEVE_CATALOGS__LAKE__TOKEN": "s3cr3t", "NEVE_STATE__URL": "postgresql://u:s3cr3t@h/db"}
    loaded = load("catalogs: {lake: {type: rest, uri: http://x}}", environ=environ)
    settings = loaded.settings
    token = settings.catalogs["lake"].token
    assert token is not None
    assert token.reveal(environ) == "s3cr3t"
    assert settings.state.database.reveal(environ) == "postgresql://u:s3cr3t@h/db"
    rows = {row.key: row.value for row in loaded.explain()}
    assert rows["catalogs.lake.token"] == "${env:NEVE_CATALOGS__LAKE__TOKEN}"
    assert rows["state.url"] == "${env:NEVE_STATE__URL}"
    shown = [repr(loaded), str(settings), repr(token), f"{token}", settings.model_dump_json(), str(loaded.explain())]
    assert not [text for text in shown if "s3cr3t" in text]
    assert json.loads(settings.model_dump_json())["catalogs"]["lake"]["token"] == "${env:NEVE_CATALOGS__LAKE__TOKEN}"


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("catalogs: {a: {type: rest, uri: http://x, token: hunter2}}", "catalogs.a.token"),
        ("catalogs: {a: {type: rest, uri: http://x, credential: 'id:hunter2'}}", "catalogs.a.credential"),
        (
            "catalogs: {a: {type: glue, storage: {s3: {access-key-id: x, secret-access-key: hunter2}}}}",
            "catalogs.a.storage.s3.secret-access-key",
        ),
        ("catalogs: {a: {type: glue, storage: {gs: {token: hunter2}}}}", "catalogs.a.storage.gs.token"),
        ("catalogs: {a: {type: glue, storage: {abfss: {account-key: hunter2}}}}", "catalogs.a.storage.abfss.account-key"),
        ("catalogs: {a: {type: glue, properties: {s3.session-token: hunter2}}}", "catalogs.a.properties.s3.session-token"),
        ("spark: {conf: {spark.hadoop.fs.s3a.secret.key: hunter2}}", "spark.conf.spark.hadoop.fs.s3a.secret.key"),
        ("spark: {conf: {spark.ssl.keyPassword: 4711}}", "spark.conf.spark.ssl.keyPassword"),
        ("profiles: {x: {spark: {conf: {a.password: hunter2}}}}", "profiles.x.spark.conf.a.password"),
    ],
)
def test_refuses_a_secret_that_is_written_down_and_does_not_repeat_it(load: Load, text: str, key: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(text)
    assert str(caught.value) == f"Cannot load settings: neve.yaml: {key}: is a secret and must not be written down; {CURE}"
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("state: {url: 'postgresql://neve:hunter2@db/neve'}", "state.url"),
        ("catalogs: {a: {type: sql, warehouse: /w, uri: 'postgresql://neve:hunter2@db/x'}}", "catalogs.a.uri"),
        ("spark: {conf: {spark.x.uri: 'jdbc:postgresql://db/x?user=a&password=hunter2'}}", "spark.conf.spark.x.uri"),
    ],
)
def test_refuses_a_password_inside_a_url(load: Load, text: str, key: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(text)
    assert str(caught.value) == f"Cannot load settings: neve.yaml: {key}: holds a password; {CURE}"


def test_takes_a_reference_in_the_middle_of_a_url(load: Load) -> None:
    url = load("state: {url: 'postgresql://neve:${env:PG}@db/neve'}").settings.state.database
    assert str(url) == "postgresql://neve:${env:PG}@db/neve"
    assert url.reveal({"PG": "hunter2"}) == "postgresql://neve:hunter2@db/neve"


def test_refuses_a_secret_on_the_command_line(load: Load) -> None:
    with pytest.raises(SettingsError, match=r"flag --set catalogs\.a\.token: catalogs\.a\.token: is a secret"):
        load("catalogs: {a: {type: rest, uri: http://x}}", flags={"catalogs.a.token": "hunter2"})


def test_a_profile_replaces_one_reference_by_another(load: Load) -> None:
    text = """
    catalogs: {a: {type: rest, uri: http://x, token: {env: DEV}}}
    profiles: {prod: {catalogs: {a: {token: {file: /run/token}}}}}
    """
    assert str(load(text, profile="prod").settings.catalogs["a"].token) == "${file:/run/token}"


def test_takes_file_references_from_where_the_settings_file_lies(place: Path) -> None:
    (place / "etc").mkdir()
    (place / "etc" / "token").write_text("s3cr3t")
    (place / "etc" / "neve.yaml").write_text("catalogs: {a: {type: rest, uri: http://x, token: {file: token}}}")
    token = load_settings(file=Path("etc/neve.yaml"), environ={}).settings.catalogs["a"].token
    assert token is not None
    assert str(token) == "${file:etc/token}"
    assert token.reveal({}) == "s3cr3t"


def test_says_which_reference_leads_nowhere(place: Path) -> None:
    with pytest.raises(SettingsError, match=r"^Cannot resolve \$\{env:GONE\}: the variable is not set$") as caught:
        Secret("${env:GONE}").reveal({})
    assert caught.value.hint == "Set GONE in the environment of this process."
    with pytest.raises(SettingsError, match=r"^Cannot resolve \$\{file:gone\}: No such file or directory$"):
        Secret("${file:gone}").reveal({})
    (place / "empty").write_text("\n")
    with pytest.raises(SettingsError, match=r"^Cannot resolve \$\{file:empty\}: the file is empty$"):
        Secret("${file:empty}").reveal({})
    (place / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(SettingsError, match=r"^Cannot resolve \$\{file:binary\}: not a text file$"):
        Secret("${file:binary}").reveal({})


def test_refuses_a_reference_where_none_is_read(load: Load) -> None:
    with pytest.raises(SettingsError, match=r"neve\.yaml: spark\.master: takes no reference; set it by its NEVE_ variable"):
        load("spark: {master: '${env:MASTER}'}")


def test_text_without_references_reveals_itself() -> None:
    assert Text.parse("${user.home}/x").reveal({}) == "${user.home}/x"


@pytest.mark.parametrize(
    "key",
    [
        "s3.secret-access-key",
        "s3.session-token",
        "token",
        "credential",
        "adls.sas-token.account.dfs.core.windows.net",
        "fs.azure.account.key.account.dfs.core.windows.net",
        "spark.hadoop.fs.s3a.access.key",
        "spark.ssl.trustStorePassword",
        "jdbc.password",
        "gcs.decryption-key",
        "rest.signing.private-key",
        "gcs.oauth2.token",
    ],
)
def test_knows_secret_keys(key: str) -> None:
    assert is_secret_key(key)


@pytest.mark.parametrize(
    "key",
    [
        "s3.access-key-id",
        "spark.hadoop.fs.s3a.aws.credentials.provider",
        "client.credentials-provider",
        "oauth2-server-uri",
        "token-refresh-enabled",
        "token-exchange-enabled",
        "token-expires-in-ms",
        "gcs.oauth2.token-expires-at",
        "header.X-Iceberg-Access-Delegation",
        "spark.sql.shuffle.partitions",
        "spark.kerberos.keytab",
        "jdbc.schema-version",
        "spark.kubernetes.driver.secrets.spark-secret",
        "spark.kubernetes.executor.secretKeyRef.ENV",
        "delegation.token.renewal.interval",
        "gcs.encryption-key-id",
        "write.parquet.tokenizer",
        "spark.hadoop.fs.gs.auth.service.account.json.keyfile",
    ],
)
def test_knows_keys_that_are_not_secret(key: str) -> None:
    assert not is_secret_key(key)
