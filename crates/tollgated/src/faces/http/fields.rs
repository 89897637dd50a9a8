//! Header fields that tell a client how it stands, in the style that the daemon was told.

use hyper::HeaderMap;
use tollgate::Decision;
use tollgate_tokio::fields::{self, FieldStyle};

use crate::app::HeaderStyle;
use crate::service::Service;

/// Adds the fields of a decision.
pub(crate) fn add(
    headers: &mut HeaderMap,
    decision: &Decision,
    service: &Service,
    style: HeaderStyle,
) {
    let label = decision.limit().map(|limit| service.label(limit));
    let name = label.as_ref().map_or("", |label| label.name());
    let style = match style {
        HeaderStyle::None => FieldStyle::None,
        HeaderStyle::Ietf => FieldStyle::Ietf,
        HeaderStyle::Draft03 => FieldStyle::Draft03,
        HeaderStyle::XDraft03 => FieldStyle::XDraft03,
        HeaderStyle::Github => FieldStyle::Github,
    };
    fields::add(headers, decision, name, style);
}
