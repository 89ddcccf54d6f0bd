//! The items for pods with group managed service accounts.

use super::builder::{PlanBuilder, item, why};
use super::registry::number;
use crate::api::bootstrap_config::{DOMAIN_BLOB, Gmsa};
use crate::bootstrap::error::RenderError;
use crate::bootstrap::facts::BootstrapFacts;
use crate::bootstrap::paths;
use crate::bootstrap::plan::{Access, Check, Item, Kind, RegistryData, Script};
use crate::vm::FailureCode;

const GMSA_DOCS: &str = "https://kubernetes.io/docs/tasks/configure-pod-container/configure-gmsa/";
const DJOIN_DOCS: &str = "https://learn.microsoft.com/windows-server/identity/ad-ds/manage/join-computer-to-domain-offline";
const CCG_DOCS: &str = "https://learn.microsoft.com/windows/win32/api/ccgplugins/nn-ccgplugins-iccgdomainauthcredentials";

/// Adds the items before the restart: joining the domain, and the credential plug-in.
pub(super) fn stage(all: &mut PlanBuilder, facts: &BootstrapFacts, gmsa: &Gmsa) -> Result<(), RenderError> {
    let remedy = "Look into C:\\ProgramData\\capw\\bootstrap.log for details.";
    let reason = "Without it, containers with a group managed service account cannot use SMB shares.";
    let kind = number(r"HKLM:\SYSTEM\CurrentControlSet\Services\hns\State", "EnableCompartmentNamespace", 1, true);
    all.add(item("compartment-namespace", FailureCode::RegistrySetting, 60, kind, why(reason, GMSA_DOCS, remedy)));
    if let Some(domain) = &gmsa.domain {
        let path = format!(r"{}\domain-join", paths::SECRET);
        let blob = facts.secrets.bytes(DOMAIN_BLOB, &domain.blob_from.secret_key_ref)?.to_vec();
        let kind = all.file("secret/domain-join", &path, Access::Admins, blob);
        let reason = "The output of djoin /provision: the machine's account in the domain, with its password.";
        all.add(Item {
            unless: Some(Check::File(paths::SENTINEL.into())),
            ..item("domain-blob", FailureCode::DomainJoin, 60, kind, why(reason, DJOIN_DOCS, "Check the free space and the health of drive C:."))
        });
        let kind = Kind::Script(Script::DomainJoin { domain: domain.name.clone(), blob: path });
        let reason = "Domain controllers give the passwords of group managed service accounts only to members of the domain.";
        let remedy = "Create the file again: djoin /provision /domain <domain> /machine <name of this machine> /reuse /savefile <file>. It can be used once, and for that name only.";
        all.add(item("domain-join", FailureCode::DomainJoin, 300, kind, why(reason, DJOIN_DOCS, remedy)));
    }
    if let Some(plugin) = &gmsa.credential_plugin {
        let id = &plugin.class_id;
        let text = |key: String, name: &str, value: &str| Kind::Registry {
            key,
            name: name.into(),
            data: RegistryData::String(value.into()),
            restart: false,
        };
        let class = format!(r"HKLM:\SOFTWARE\CLASSES\CLSID\{id}");
        let app = format!(r"HKLM:\SOFTWARE\CLASSES\AppID\{id}");
        let reason = "Container Credential Guard loads the plug-in as a COM class.";
        let remedy = "Check class and library in spec.windows.gmsa.credentialPlugin against the plug-in in the image.";
        for (item_id, kind) in [
            ("ccg-library", Kind::Wait { check: Check::File(plugin.library.clone()) }),
            ("ccg-class-app", text(class.clone(), "AppID", id)),
            ("ccg-class-library", text(format!(r"{class}\InprocServer32"), "", &plugin.library)),
            ("ccg-class-threads", text(format!(r"{class}\InprocServer32"), "ThreadingModel", "Both")),
            ("ccg-app-surrogate", text(app, "DllSurrogate", "")),
            ("ccg-plugin", Kind::Script(Script::CredentialPlugin { clsid: id.clone() })),
        ] {
            all.add(item(item_id, FailureCode::DomainJoin, 60, kind, why(reason, CCG_DOCS, remedy)));
        }
    }
    Ok(())
}

/// Adds the check after the restart that the machine is in the domain.
pub(super) fn joined(all: &mut PlanBuilder, gmsa: &Gmsa) {
    if let Some(domain) = &gmsa.domain {
        let check = Check::Registry {
            key: r"HKLM:\SYSTEM\CurrentControlSet\Services\Tcpip\Parameters".into(),
            name: "Domain".into(),
            equals: domain.name.clone(),
        };
        let reason = "The restart made the machine a member of the domain.";
        let remedy = "Look into C:\\Windows\\debug\\NetSetup.LOG for the reason why the join failed.";
        all.add(item("domain-member", FailureCode::DomainJoin, 120, Kind::Wait { check }, why(reason, DJOIN_DOCS, remedy)));
    }
}
