//! A client of an agent's port for tests: one request a connection, without a library.

use std::net::SocketAddr;
use std::sync::Arc;

use holdfast_wire::bytes::Base64;
use holdfast_wire::run::TrustMaterial;
use holdfast_wire::{ALPN_HTTP, trust};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

pub(crate) async fn connect(address: SocketAddr, material: &TrustMaterial, protocol: &[u8]) -> TlsStream<TcpStream> {
    let config = trust::client_config(material, &[protocol]).unwrap();
    let socket = TcpStream::connect(address).await.unwrap();
    TlsConnector::from(Arc::new(config)).connect(trust::server_name(), socket).await.unwrap()
}

/// Sends one request; returns status and body of the answer.
pub(crate) async fn send(
    address: SocketAddr,
    material: &TrustMaterial,
    authorization: Option<&str>,
    request: (&str, &str, &str),
) -> (u16, String) {
    send_with(address, material, authorization, "", request).await
}

/// The same with further headers, each with its line end.
pub(crate) async fn send_with(
    address: SocketAddr,
    material: &TrustMaterial,
    authorization: Option<&str>,
    headers: &str,
    (method, path, body): (&str, &str, &str),
) -> (u16, String) {
    let mut stream = connect(address, material, ALPN_HTTP).await;
    let authorization = authorization.map(|value| format!("authorization: {value}\r\n")).unwrap_or_default();
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: agent\r\nconnection: close\r\n{authorization}{headers}\
         content-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // The peer may close the connection without a TLS close notification.
    let _ = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

pub(crate) fn bearer(material: &TrustMaterial) -> String {
    let token = serde_json::to_value(Base64(material.token.0.clone())).unwrap();
    format!("Bearer {}", token.as_str().unwrap())
}

pub(crate) async fn ask<T: DeserializeOwned>(
    address: SocketAddr,
    material: &TrustMaterial,
    path: &str,
    message: Option<&impl Serialize>,
) -> T {
    let body = message.map(|message| serde_json::to_string(message).unwrap()).unwrap_or_default();
    let method = if message.is_some() { "POST" } else { "GET" };
    let (status, body) = send(address, material, Some(&bearer(material)), (method, path, &body)).await;
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}
