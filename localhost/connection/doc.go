// Package connection keeps one account of a Connector on this machine: private
// directories, the owner's plain settings, secrets, and the environment that a
// CLI starts with. Nothing of it ever leaves the machine.
//
//	ROOT/connectors/KEY/ID/      one connection, 0700; "default" unless named
//	    connection.json          settings and declared secrets, strict, 0600
//	    home/ tmp/ state/        HOME, TMPDIR and XDG_STATE_HOME of the CLI's login,
//	                             which each operation gets a copy of, 0700
//	ROOT/connectors/KEY/.intent.json  what is wanted of the Connector; see package intent
//	ROOT/sealed/                 the secrets of all connections; see package sealed
//	ROOT/operations/EPOCH/…      private working directories of one live host
//
// The environment of a CLI is built from nothing. On every system it holds, in
// this order (a name given twice, ignoring case, is refused unless the list says
// that it may be overridden):
//
//   - HOME, TMPDIR, XDG_STATE_HOME: directories of the connection, for which the
//     host puts those of one operation (see package home); on Windows
//     also USERPROFILE, TEMP, TMP, APPDATA, LOCALAPPDATA and SYSTEMROOT
//   - PATH=/dev/null (NUL on Windows), where nothing can be found or put: unset,
//     the C library would search directories of the system
//   - LC_CTYPE=C.UTF-8 (until LANG or LC_ALL is set), TZ=UTC, TERM=dumb, NO_COLOR=1,
//     which later sources may override
//   - what the installed release needs for its interpreter
//   - settings: the manifest's defaults, then the owner's NAME=VALUE
//   - secrets, each under the variable that it is declared with
//   - variables that parameters of the call set
//
// Names that make a loader or an interpreter run or read something else (LD_*,
// DYLD_*, PATH, HOME, NODE_OPTIONS, …; see Reserved) are refused from every
// source but the host and the release.
//
// Secrets are never logged or printed: Secret shows itself as "[secret]", and
// errors name a secret, never quote one. All types are safe for concurrent use;
// files are replaced atomically, so a start sees the old value or the new one.
package connection
