//! The key by which the nodes of a cluster know each other.
//!
//! All nodes derive the same Ed25519 key from the cluster's secret. A connection is TLS 1.3 in which both sides show this
//! key as a raw public key (RFC 7250) and sign the handshake with it, so each proves to the other that it knows the secret,
//! and the secret itself is never sent. There are no certificates to issue or to renew. TLS signs what a client and what a
//! server says under different labels, so that neither proof can be sent back as the other. Connections are not resumed:
//! each proves it anew, with fresh keys, and a secret that leaks later does not open what was recorded before.
//!
//! Whoever can connect sees the public key, and could try secrets against it. So a secret must be long and random; the
//! program checks its length.

use std::fmt;
use std::sync::Arc;

use hmac::{Hmac, KeyInit, Mac};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, ServerConfig,
    SignatureScheme,
};
use sha2::Sha256;

/// Separates this use of the secret from any other.
const LABEL: &[u8] = b"parlor peer door, Ed25519 key, version 1";

/// What both sides must say that they speak inside of TLS.
const PROTOCOL: &[u8] = b"parlor-peer";

/// What an Ed25519 private key begins with as PKCS #8 (RFC 8410); the 32 bytes of the key follow.
const PKCS8_PREFIX: [u8; 16] = *b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20";

/// The key of a cluster. Clones share it.
#[derive(Clone)]
pub struct ClusterKey {
    pub(crate) client: Arc<ClientConfig>,
    pub(crate) server: Arc<ServerConfig>,
}

impl ClusterKey {
    /// The key that belongs to a secret. Fails if the cryptography refuses it, which it does for no secret.
    pub fn derive(secret: &[u8]) -> Result<Self, Error> {
        let certified = certified_key(secret)?;
        let public = public_key(&certified);
        Ok(Self {
            client: Arc::new(client_config(Arc::clone(&certified), public.clone())?),
            server: Arc::new(server_config(certified, public)?),
        })
    }
}

/// The key pair that belongs to a secret.
pub(crate) fn certified_key(secret: &[u8]) -> Result<Arc<CertifiedKey>, Error> {
    // HKDF-Extract of RFC 5869: one block is all that the key needs.
    let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(LABEL).expect("HMAC takes a key of any length");
    mac.update(secret);
    let pkcs8 = [&PKCS8_PREFIX[..], &mac.finalize().into_bytes()].concat();
    let signing_key = aws_lc_rs::sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(pkcs8))?;
    let public = signing_key.public_key().ok_or(Error::General("no public key".to_owned()))?;
    let shown = CertificateDer::from(public.to_vec());
    Ok(Arc::new(CertifiedKey::new(vec![shown], signing_key)))
}

pub(crate) fn public_key(certified: &CertifiedKey) -> SubjectPublicKeyInfoDer<'static> {
    SubjectPublicKeyInfoDer::from(certified.cert.first().map(|shown| shown.to_vec()).unwrap_or_default())
}

/// How a node connects that has the key `own`, to nodes that have the public key `expected`.
pub(crate) fn client_config(
    own: Arc<CertifiedKey>,
    expected: SubjectPublicKeyInfoDer<'static>,
) -> Result<ClientConfig, Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = SameKey { public: expected, provider: Arc::clone(&provider) };
    let mut client = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(own)));
    client.alpn_protocols = vec![PROTOCOL.to_vec()];
    client.resumption = Resumption::disabled();
    // The server has one key, whatever it is called.
    client.enable_sni = false;
    Ok(client)
}

fn server_config(
    own: Arc<CertifiedKey>,
    expected: SubjectPublicKeyInfoDer<'static>,
) -> Result<ServerConfig, Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = SameKey { public: expected, provider: Arc::clone(&provider) };
    let mut server = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(Arc::new(verifier))
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(own)));
    server.alpn_protocols = vec![PROTOCOL.to_vec()];
    server.session_storage = Arc::new(NoServerSessionStorage {});
    server.send_tls13_tickets = 0;
    Ok(server)
}

impl fmt::Debug for ClusterKey {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterKey").finish_non_exhaustive()
    }
}

/// Accepts the other side if it shows the key of the cluster, and has signed the handshake with it.
#[derive(Debug)]
struct SameKey {
    public: SubjectPublicKeyInfoDer<'static>,
    provider: Arc<CryptoProvider>,
}

impl SameKey {
    fn check(&self, shown: &CertificateDer<'_>) -> Result<(), Error> {
        // The key is public: whoever connects is shown it, so the comparison need not take the same time for all keys.
        match shown.as_ref() == self.public.as_ref() {
            true => Ok(()),
            false => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    fn check_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check(shown)?;
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature_with_raw_key(message, &self.public, signed, algorithms)
    }
}

/// Never called: both sides speak TLS 1.3 only.
fn no_tls12() -> Error {
    Error::General("nodes speak TLS 1.3 only".to_owned())
}

impl ServerCertVerifier for SameKey {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(end_entity).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(no_tls12())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, cert, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for SameKey {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(end_entity).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(no_tls12())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, cert, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
