//! A minimal browser for tests: cookies, redirects and forms.

use std::collections::BTreeMap;

use reqwest::header::{COOKIE, LOCATION, SET_COOKIE};
use reqwest::redirect::Policy;
use reqwest::{Client, Url};
use tokio::runtime::Runtime;

/// How many redirects are followed.
const MAX_REDIRECTS: usize = 20;

/// A browser with its own cookies.
pub(crate) struct Browser {
    client: Client,
    cookies: BTreeMap<String, String>,
    runtime: Runtime,
}

/// A loaded page; `url` is the address after all redirects.
struct Page {
    url: Url,
    status: u16,
    text: String,
}

impl Browser {
    pub(crate) fn new() -> Self {
        let client =
            Client::builder().redirect(Policy::none()).no_proxy().pool_max_idle_per_host(0).build().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Self { client, cookies: BTreeMap::new(), runtime }
    }

    /// Opens a login address, signs in and consents; returns the last page.
    pub(crate) fn log_in(&mut self, url: &str, user: &str) -> String {
        let page = self.get(url);
        let page = self.submit(&page, &[("login", user), ("password", "any")]);
        self.submit(&page, &[]).text
    }

    /// Opens a login address, signs in and denies the consent; returns the last page.
    pub(crate) fn deny(&mut self, url: &str, user: &str) -> String {
        let page = self.get(url);
        let page = self.submit(&page, &[("login", user), ("password", "any")]);
        let abort = attribute(&page.text, "href=\"", |link| link.ends_with("/abort"))
            .expect("the page has a link to abort");
        self.get(page.url.join(&abort).unwrap().as_str()).text
    }

    /// Opens the device address, enters and confirms a code, signs in and consents; returns the last page.
    pub(crate) fn log_in_with_code(&mut self, url: &str, code: &str, user: &str) -> String {
        let page = self.get(url);
        let page = self.submit(&page, &[("user_code", code)]);
        let page = self.submit(&page, &[("confirm", "yes")]);
        let page = self.submit(&page, &[("login", user), ("password", "any")]);
        self.submit(&page, &[]).text
    }

    /// Opens the callback (`redirect_uri`) of a login address with this query; returns status and page.
    pub(crate) fn open_callback(&mut self, url: &str, query: &str) -> (u16, String) {
        let page = self.get(&format!("{}?{query}", callback(url)));
        (page.status, page.text)
    }

    /// Whether the port of the callback refuses connections.
    pub(crate) fn is_callback_closed(&mut self, url: &str) -> bool {
        let request = self.client.get(callback(url)).send();
        self.runtime.block_on(request).is_err()
    }

    pub(crate) fn post(&mut self, url: &str, form: &[(&str, &str)]) -> (u16, String) {
        let page = self.open(url, Some(form));
        (page.status, page.text)
    }

    fn get(&mut self, url: &str) -> Page {
        self.open(url, None)
    }

    /// Submits the form of a page: its hidden fields, and these fields.
    fn submit(&mut self, page: &Page, fields: &[(&str, &str)]) -> Page {
        let action = attribute(&page.text, "action=\"", |_| true);
        let action = action.unwrap_or_else(|| panic!("no form on {}: {}", page.url, page.text));
        let hidden: Vec<(String, String)> =
            page.text.split("<input").skip(1).filter_map(hidden_field).collect();
        let form: Vec<(&str, &str)> = hidden
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .filter(|(name, _)| fields.iter().all(|(other, _)| other != name))
            .chain(fields.iter().copied())
            .collect();
        let target = page.url.join(&action).unwrap();
        self.open(target.as_str(), Some(&form))
    }

    fn open(&mut self, url: &str, form: Option<&[(&str, &str)]>) -> Page {
        let mut url = Url::parse(url).unwrap();
        let mut form = form;
        for _ in 0..MAX_REDIRECTS {
            let cookies: Vec<String> =
                self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let request = match form {
                Some(form) => {
                    let mut body = url::form_urlencoded::Serializer::new(String::new());
                    let request = self.client.post(url.clone());
                    let request = request.header("content-type", "application/x-www-form-urlencoded");
                    request.body(body.extend_pairs(form).finish())
                }
                None => self.client.get(url.clone()),
            };
            let sent = request.header(COOKIE, cookies.join("; ")).send();
            let response = self.runtime.block_on(sent).unwrap_or_else(|error| panic!("{url}: {error:?}"));
            for cookie in response.headers().get_all(SET_COOKIE) {
                let pair = cookie.to_str().unwrap().split(';').next().unwrap();
                let (name, value) = pair.split_once('=').unwrap();
                self.cookies.insert(name.to_owned(), value.to_owned());
            }
            let status = response.status();
            if let Some(next) = response.headers().get(LOCATION).filter(|_| status.is_redirection()) {
                (url, form) = (url.join(next.to_str().unwrap()).unwrap(), None);
                continue;
            }
            let text = self.runtime.block_on(response.text()).unwrap();
            return Page { url, status: status.as_u16(), text };
        }
        panic!("{url}: more than {MAX_REDIRECTS} redirects");
    }
}

/// The `redirect_uri` of a login address.
fn callback(url: &str) -> String {
    let url = Url::parse(url).unwrap();
    let redirect = url.query_pairs().find(|(name, _)| name == "redirect_uri");
    redirect.expect("the address has a redirect_uri").1.into_owned()
}

/// The first attribute value after `prefix` that matches.
fn attribute(html: &str, prefix: &str, matches: impl Fn(&str) -> bool) -> Option<String> {
    let values = html.split(prefix).skip(1).filter_map(|rest| rest.split('"').next());
    values.map(|value| value.replace("&amp;", "&")).find(|value| matches(value))
}

/// Name and value of a hidden input.
fn hidden_field(input: &str) -> Option<(String, String)> {
    let tag = input.split('>').next()?;
    let is_hidden = tag.contains("type=\"hidden\"");
    let value = attribute(tag, "value=\"", |_| true).unwrap_or_default();
    is_hidden.then(|| attribute(tag, "name=\"", |_| true).map(|name| (name, value)))?
}
