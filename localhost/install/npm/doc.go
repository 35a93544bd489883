// Package npm is the strict edge to the npm world: package integrity, the lock
// that pins a tree, the tarballs of the managed interpreter, and npm itself, run
// by that interpreter with every setting as a flag.
//
//	ParseIntegrity, Verify    "sha512-…" and nothing weaker
//	ParseLock                 lockfile version 3; every entry from a registry, with integrity
//	Client.Fetch              one tarball of an exact package over HTTPS
//	Tool.CI, Tool.Lock        npm ci and npm install --package-lock-only, scripts off
//	Tool.Lifecycle            the one postinstall that a manifest allows
//	CheckTree                 what npm left behind is what the lock says
//
// No host name of a registry is in this package: its base URL is the owner's. Of
// a lock only names, versions and integrity are used; its URLs are dropped.
package npm
