//! Access control: the daemon asks polkit, which is on a bus of the daemon's own, what a user may do.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use super::{Daemon, are_installed, until};

/// Whom polkit has something to say of: root may do everything.
pub const USER: &str = "nobody";
const ACTIONS: &str = "org.libvirt.api.";
/// What tells that a rule is in force.
const NEVER_REFUSED: &str = "domain.reset";

/// The place where programs look for the system's bus, and polkit's own file that says how to start it.
const BUS: &str = "<busconfig><type>session</type><listen>unix:path=/run/dbus/system_bus_socket</listen><auth>EXTERNAL</auth>\
    <servicedir>/usr/share/dbus-1/system-services</servicedir>\
    <policy context='default'><allow user='*'/><allow own='*'/><allow send_destination='*'/><allow receive_sender='*'/></policy></busconfig>";

/// What lets any user connect, and asks polkit at each request.
const CONFIGURATION: &str = "auth_unix_rw = \"none\"\nunix_sock_rw_perms = \"0777\"\naccess_drivers = [\"polkit\"]\n";

impl Daemon {
    /// In system mode, with access control. `None`, and why, without root or if the programs are not there.
    pub fn start_system_with_polkit() -> Option<Self> {
        if !are_installed(&["dbus-daemon", "pkcheck", "setpriv"]) {
            return None;
        }
        Self::start_system_with(CONFIGURATION, |daemon| {
            let file = daemon.path("bus.conf");
            fs::write(&file, BUS).unwrap();
            daemon.run("mkdir", &["-p", "/run/dbus", "/run/systemd/seats", "/run/systemd/sessions", "/run/systemd/users", "/run/systemd/machines"]);
            daemon.run("dbus-daemon", &["--fork", "--config-file", file.to_str().unwrap()]);
        })
    }

    /// Gives polkit a rule that lets [`USER`] do everything.
    pub fn allow(&self, rule: &str) {
        self.write_rule("50-capw.rules", rule);
        until("polkit has read its rules", || self.may(NEVER_REFUSED));
    }

    /// Refuses the user one action, e.g. `storage-vol.create`, and only that, whatever other rules say.
    pub fn refuse(&self, action: &str) {
        self.refuse_all(&[action]);
    }

    /// Refuses the user these actions and no other ones.
    pub fn refuse_all(&self, actions: &[&str]) {
        let refused: Vec<String> = actions.iter().map(|action| format!("'{ACTIONS}{action}'")).collect();
        let rule = format!("polkit.addRule(function(action) {{ if ([{}].indexOf(action.id) >= 0) return polkit.Result.NO; }});", refused.join(", "));
        self.write_rule("10-refused.rules", &rule);
        until("polkit has read its rules", || !actions.iter().any(|action| self.may(action)) && self.may(NEVER_REFUSED));
    }

    fn write_rule(&self, name: &str, rule: &str) {
        let new = self.path("new.rules");
        fs::write(&new, rule).unwrap();
        fs::set_permissions(&new, fs::Permissions::from_mode(0o644)).unwrap();
        fs::rename(new, self.path("etc/polkit-1/rules.d").join(name)).unwrap();
    }

    /// What polkit says of the user by the rules that it has read.
    fn may(&self, action: &str) -> bool {
        let check = format!("exec pkcheck --process $$ --action-id {ACTIONS}{action}");
        self.as_user("sh").args(["-c", &check]).stderr(Stdio::null()).stdout(Stdio::null()).status().unwrap().success()
    }

    /// A program that the user runs where the daemon is.
    pub fn as_user(&self, program: impl AsRef<Path>) -> Command {
        let mut command = self.command("setpriv");
        command.args(["--reuid", USER, "--regid", "nogroup", "--clear-groups", "--"]).arg(program.as_ref());
        command
    }
}
