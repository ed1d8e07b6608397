//! Finds out how to log in to a server.

use std::net::Ipv4Addr;
use std::time::Duration;

use oauth2::HttpResponse;
use oauth2::http::header::{ACCEPT, CONTENT_TYPE, WWW_AUTHENTICATE};
use oauth2::http::{Method, Request, StatusCode};
use serde::de::DeserializeOwned;
use tokio::net::TcpListener;
use url::Url;
use zeroize::Zeroizing;

use super::ResourceServer;
use super::challenge::Challenge;
use super::client::{DiscoveredClient, TokenAuth};
use super::metadata::{
    ResourceMetadata, ServerMetadata, covers, resource_metadata_urls, scopes, server_metadata_urls, usable,
};
use super::registration::{Registration, register};
use crate::error::sanitize;
use crate::http::Http;
use crate::{DEFAULT_REDIRECT_PATH, LoginError, Redactor, Secret};

/// How long it may take to find out how to log in to a server.
pub const DISCOVERY_WAIT: Duration = Duration::from_secs(60);

/// The question with which a server is asked for its challenge.
const QUESTION: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"parlor","version":"1"}}}"#;

/// Finds the authorization server of `server`, and a client id there.
pub(super) async fn discover(
    http: &Http,
    server: &ResourceServer,
    redactor: &Redactor,
) -> Result<DiscoveredClient, LoginError> {
    discover_unclean(http, server, redactor)
        .await
        .map_err(|reason| LoginError::Discovery(sanitize(redactor, &reason)))
}

/// Like [`discover`]; the error may contain secrets and control characters.
async fn discover_unclean(
    http: &Http,
    server: &ResourceServer,
    redactor: &Redactor,
) -> Result<DiscoveredClient, String> {
    let url =
        Url::parse(&server.url).map_err(|error| format!("the server's address is not valid: {error}"))?;
    usable(&server.url, &url)
        .map_err(|_| "logins need a server with https://; http:// is for this machine only".to_owned())?;
    let (status, challenge) = challenge(http, server).await?;
    let found = resource_metadata(http, &url, &challenge).await?;
    let (resource, issuer, offered) = match found {
        Some(metadata) => {
            if !covers(&metadata.resource, &url) {
                return Err("its metadata is about another resource than the configured address".to_owned());
            }
            let named = metadata.authorization_servers.iter().find(|address| usable(address, &url).is_ok());
            let issuer = named.ok_or("its metadata names no authorization server that can be used")?.clone();
            (metadata.resource, issuer, metadata.scopes_supported)
        }
        None if status != StatusCode::UNAUTHORIZED && status != StatusCode::FORBIDDEN => {
            return Err(format!("it does not ask for a login (status {})", status.as_u16()));
        }
        // Servers of 2025-03-26 have no metadata, and are their own authorization server.
        None => (server.url.clone(), url.origin().ascii_serialization(), Vec::new()),
    };
    let metadata = server_metadata(http, &issuer, &url).await?;
    if !metadata.code_challenge_methods_supported.iter().any(|method| method == "S256") {
        return Err("its authorization server does not offer PKCE with S256".to_owned());
    }
    let authorize_url = endpoint(&metadata.authorization_endpoint, "authorization_endpoint", &url)?;
    let token_url = endpoint(&metadata.token_endpoint, "token_endpoint", &url)?;
    let needed = if challenge.scope.is_some() { challenge.scopes() } else { offered };
    let offline = metadata.scopes_supported.iter().filter(|scope| *scope == "offline_access").cloned();
    let scopes = scopes(needed.into_iter().chain(server.scopes.iter().cloned()).chain(offline))?;
    let redirect_port = free_port().await?;
    let registration = match &server.client_id {
        Some(client_id) => configured(client_id, server.client_secret.as_ref(), &metadata)?,
        None => {
            let address = metadata.registration_endpoint.as_deref().ok_or_else(|| {
                let name = &server.name;
                format!("its authorization server lets nobody register; get a client id there and run: parlor mcp login {name} --client-id ID")
            })?;
            let address = endpoint(address, "registration_endpoint", &url)?;
            let redirect_url = format!("http://127.0.0.1:{redirect_port}{DEFAULT_REDIRECT_PATH}");
            let method = chosen_method(&metadata.token_endpoint_auth_methods_supported, TokenAuth::None)?;
            let registered = register(
                http,
                &Url::parse(&address).map_err(|error| error.to_string())?,
                &redirect_url,
                method,
                &scopes,
            )
            .await;
            registered
                .map_err(|reason| format!("its authorization server does not register parlor: {reason}"))?
        }
    };
    registration.client_secret.iter().for_each(|secret| redactor.learn(&Secret::new(secret.as_str())));
    Ok(DiscoveredClient {
        server_url: server.url.clone(),
        resource,
        issuer,
        names_issuer: metadata.authorization_response_iss_parameter_supported,
        authorize_url,
        token_url,
        client_id: registration.client_id,
        client_secret: registration.client_secret,
        token_auth: registration.token_auth,
        scopes,
        redirect_port,
    })
}

/// Asks the server something without a token. Returns the status and the challenge.
async fn challenge(http: &Http, server: &ResourceServer) -> Result<(StatusCode, Challenge), String> {
    let mut request = Request::builder()
        .method(Method::POST)
        .uri(&server.url)
        .header(CONTENT_TYPE, "application/json")
        .header(ACCEPT, "application/json, text/event-stream");
    for (name, value) in &server.headers {
        request = request.header(name, value.expose());
    }
    let request = request.body(QUESTION.as_bytes().to_vec()).map_err(|error| error.to_string())?;
    let answer =
        http.send(request).await.map_err(|error| format!("the server cannot be reached: {error}"))?;
    let headers = answer.headers().get_all(WWW_AUTHENTICATE);
    let challenge = Challenge::parse(headers.iter().filter_map(|value| value.to_str().ok()));
    Ok((answer.status(), challenge.unwrap_or_default()))
}

/// The metadata of the server, from where its challenge says, else from the well-known places.
async fn resource_metadata(
    http: &Http,
    server: &Url,
    challenge: &Challenge,
) -> Result<Option<ResourceMetadata>, String> {
    if let Some(address) = &challenge.resource_metadata {
        let address = usable(address, server).map_err(|reason| format!("its resource_metadata {reason}"))?;
        let found = document(http, &address).await?;
        return found.map(Some).ok_or_else(|| "the metadata that it names is missing".to_owned());
    }
    for address in resource_metadata_urls(server) {
        if let Some(found) = document(http, &address).await? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// The metadata of the authorization server `issuer`.
async fn server_metadata(http: &Http, issuer: &str, server: &Url) -> Result<ServerMetadata, String> {
    let address = usable(issuer, server).map_err(|reason| format!("its authorization server {reason}"))?;
    for candidate in server_metadata_urls(&address) {
        let Some(found) = document::<ServerMetadata>(http, &candidate).await? else { continue };
        if found.issuer != issuer {
            return Err("the metadata of its authorization server is about another issuer".to_owned());
        }
        return Ok(found);
    }
    Err("its authorization server has no metadata".to_owned())
}

/// A JSON document; `None` if there is none at this address.
async fn document<T: DeserializeOwned>(http: &Http, url: &Url) -> Result<Option<T>, String> {
    let request = Request::builder().uri(url.as_str()).header(ACCEPT, "application/json").body(Vec::new());
    let request = request.map_err(|error| error.to_string())?;
    let answer: HttpResponse =
        http.send(request).await.map_err(|error| format!("its metadata cannot be read: {error}"))?;
    if !answer.status().is_success() {
        return Ok(None);
    }
    let read = serde_json::from_slice(answer.body());
    read.map(Some).map_err(|error| format!("its metadata is not valid: {error}"))
}

fn endpoint(address: &str, name: &str, server: &Url) -> Result<String, String> {
    let checked =
        usable(address, server).map_err(|reason| format!("its authorization server's {name} {reason}"));
    checked.map(String::from)
}

/// The client that the user named.
fn configured(
    client_id: &str,
    secret: Option<&Secret>,
    metadata: &ServerMetadata,
) -> Result<Registration, String> {
    let token_auth = match secret {
        Some(_) => chosen_method(&metadata.token_endpoint_auth_methods_supported, TokenAuth::Basic)?,
        None => TokenAuth::None,
    };
    let client_secret = secret.map(|secret| Zeroizing::new(secret.expose().to_owned()));
    Ok(Registration { client_id: client_id.to_owned(), client_secret, token_auth })
}

/// How to prove who parlor is: `preferred` if the authorization server takes it, else the first of its methods that parlor
/// knows.
fn chosen_method(supported: &[String], preferred: TokenAuth) -> Result<TokenAuth, String> {
    // Without the list the methods are those with a secret, but servers that leave it out take `none` in practice.
    if supported.is_empty() || supported.iter().any(|name| name == preferred.as_str()) {
        return Ok(preferred);
    }
    let known = supported.iter().find_map(|name| TokenAuth::parse(name));
    known.ok_or_else(|| {
        "its authorization server takes no token_endpoint_auth_method that parlor knows".to_owned()
    })
}

/// A port that is free now. The callback takes another one if it is not free any more, which authorization servers allow for
/// 127.0.0.1 (RFC 8252, section 7.3).
async fn free_port() -> Result<u16, String> {
    let failed = |error: std::io::Error| format!("no port is free on 127.0.0.1: {error}");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(failed)?;
    Ok(listener.local_addr().map_err(failed)?.port())
}
