"""Certificates of servers that tests start."""

from __future__ import annotations

from pathlib import Path


def certificate(folder: Path, password: str | None = None) -> Path:
    """A PEM file with a key and a certificate for this machine."""
    from datetime import datetime, timedelta, timezone

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(timezone.utc)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    hidden = serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
    pem = serialization.Encoding.PEM
    file = folder / "rest.pem"
    file.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, hidden) + made.public_bytes(pem))
    return file
