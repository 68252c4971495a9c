//! The job's token on every request: `Authorization: Bearer <base64>`.

use axum::Json;
use axum::body::Body;
use axum::http::header::{AUTHORIZATION, CONNECTION, HeaderValue};
use axum::http::{HeaderMap, Response, StatusCode};
use axum::response::IntoResponse as _;
use holdfast_model::{Failure, FailureKind};
use holdfast_wire::bytes::Base64;
use holdfast_wire::run::TrustMaterial;
use holdfast_wire::trust;
use serde::Deserialize as _;
use serde::de::IntoDeserializer as _;
use serde::de::value::{Error, StrDeserializer};

/// Checks the token; the comparison takes the same time whatever was presented.
pub(super) fn check(material: &TrustMaterial, headers: &HeaderMap) -> Result<(), &'static str> {
    let presented = headers.get(AUTHORIZATION).ok_or("sent a request without a token")?;
    let presented = presented.to_str().ok().and_then(|value| value.strip_prefix("Bearer "));
    let text: StrDeserializer<'_, Error> = presented.ok_or("presented an invalid token")?.into_deserializer();
    let token = Base64::deserialize(text).map_err(|_| "presented an invalid token")?;
    if trust::token_matches(material, &token.0) { Ok(()) } else { Err("presented a wrong token") }
}

/// The answer to an unauthenticated request.
pub(super) fn refusal() -> Response<Body> {
    let problem = Failure::new(FailureKind::InvalidRequest, "this request needs the job's token");
    let mut response = (StatusCode::UNAUTHORIZED, Json(problem)).into_response();
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}
