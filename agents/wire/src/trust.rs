//! Authentication inside a job: one certificate, one token.
//!
//! Every agent serves with the job's certificate; every client accepts that certificate and no other, whatever name or
//! address it connects to. The connecting process proves with the token that it belongs to the job.

use std::sync::Arc;

use holdfast_model::DataPlane;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, ServerConfig, SignatureScheme};
use subtle::ConstantTimeEq as _;

use crate::bytes::Base64;
use crate::peer::{RECORD_KEY, RecordChecksum, RecordProtection};
use crate::run::TrustMaterial;

/// Bytes of a token.
pub const TOKEN_BYTES: usize = 32;

/// What can go wrong while making or using a job's trust material.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// No randomness, or no key could be made.
    #[error("the job's certificate could not be made: {0}")]
    Generate(String),
    /// The material does not make a usable configuration.
    #[error("the job's certificate or key cannot be used: {0}; was the job's state file changed by hand?")]
    Unusable(#[from] rustls::Error),
}

/// Makes a fresh certificate and token for a job.
pub fn generate() -> Result<TrustMaterial, TrustError> {
    let made = rcgen::generate_simple_self_signed(vec!["holdfast.invalid".to_owned()])
        .map_err(|error| TrustError::Generate(error.to_string()))?;
    let mut token = vec![0; TOKEN_BYTES];
    getrandom::fill(&mut token).map_err(|error| TrustError::Generate(error.to_string()))?;
    Ok(TrustMaterial {
        certificate: Base64(made.cert.der().to_vec()),
        key: Base64(made.signing_key.serialize_der()),
        token: Base64(token),
    })
}

/// A new key for the records of a stream, if its data are not sent over TLS.
///
/// # Errors
/// When the system has no random numbers.
pub fn record_protection(data_plane: DataPlane) -> Result<Option<RecordProtection>, TrustError> {
    let checksum = match data_plane {
        DataPlane::Encrypted => return Ok(None),
        DataPlane::Authenticated => RecordChecksum::Keyed,
        DataPlane::Plain => RecordChecksum::Crc32c,
    };
    let mut key = vec![0; RECORD_KEY];
    getrandom::fill(&mut key).map_err(|error| TrustError::Generate(error.to_string()))?;
    Ok(Some(RecordProtection { checksum, key: Base64(key) }))
}

/// True if `presented` is the job's token; takes the same time whatever is presented.
pub fn token_matches(trust: &TrustMaterial, presented: &[u8]) -> bool {
    trust.token.0.len() == TOKEN_BYTES && bool::from(trust.token.0.as_slice().ct_eq(presented))
}

/// How an agent serves: TLS 1.3, the job's certificate, these ALPN names.
pub fn server_config(trust: &TrustMaterial, protocols: &[&[u8]]) -> Result<ServerConfig, TrustError> {
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(trust.key.0.clone()));
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(vec![CertificateDer::from(trust.certificate.0.clone())], key)?;
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    Ok(config)
}

/// How agents and the orchestrator connect: TLS 1.3, only the job's certificate.
pub fn client_config(trust: &TrustMaterial, protocols: &[&[u8]]) -> Result<ClientConfig, TrustError> {
    let provider = provider();
    let pinned = PinnedCertificate {
        certificate: CertificateDer::from(trust.certificate.0.clone()),
        algorithms: provider.signature_verification_algorithms,
    };
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(pinned))
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    Ok(config)
}

/// The name that clients ask for; the certificate is pinned, so it decides nothing.
pub fn server_name() -> ServerName<'static> {
    ServerName::IpAddress(std::net::Ipv4Addr::LOCALHOST.into())
}

fn provider() -> Arc<CryptoProvider> {
    // AES-128-GCM first: the fastest where the processor has AES, and all that TLS 1.3 asks for.
    let mut provider = ring::default_provider();
    provider.cipher_suites.sort_by_key(|suite| suite.suite() != rustls::CipherSuite::TLS13_AES_128_GCM_SHA256);
    Arc::new(provider)
}

#[derive(Debug)]
struct PinnedCertificate {
    certificate: CertificateDer<'static>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for PinnedCertificate {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if *end_entity == self.certificate {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(rustls::Error::General("this is not the certificate of the job".to_owned()))
        }
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("only TLS 1.3 is supported".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    fn exchange(server: &TrustMaterial, client: &TrustMaterial) -> std::io::Result<Vec<u8>> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let config = Arc::new(server_config(server, &[b"x"]).unwrap());
        let serving = std::thread::spawn(move || {
            let (socket, _) = listener.accept().unwrap();
            let connection = rustls::ServerConnection::new(config).unwrap();
            let mut stream = rustls::StreamOwned::new(connection, socket);
            let _ = stream.write_all(b"hello");
            stream.conn.send_close_notify();
            let _ = stream.flush();
        });
        let config = Arc::new(client_config(client, &[b"x"]).unwrap());
        let connection = rustls::ClientConnection::new(config, server_name()).unwrap();
        let mut stream = rustls::StreamOwned::new(connection, TcpStream::connect(address)?);
        let mut got = Vec::new();
        let result = stream.read_to_end(&mut got);
        drop(stream);
        serving.join().unwrap();
        result.map(|_| got)
    }

    #[test]
    fn the_job_s_own_certificate_is_accepted_and_another_job_s_is_not() {
        let ours = generate().unwrap();
        let theirs = generate().unwrap();
        assert_eq!(exchange(&ours, &ours).unwrap(), b"hello");
        assert!(exchange(&theirs, &ours).is_err());
    }

    #[test]
    fn only_the_complete_token_matches() {
        let trust = generate().unwrap();
        assert!(token_matches(&trust, &trust.token.0));
        assert!(!token_matches(&trust, &trust.token.0[..31]));
        assert!(!token_matches(&trust, &[0; TOKEN_BYTES]));
        assert!(!token_matches(&trust, b""));
    }

    #[test]
    fn the_material_is_not_shown_in_debug_output() {
        let trust = generate().unwrap();
        assert_eq!(format!("{trust:?}"), "TrustMaterial(…)");
    }
}
