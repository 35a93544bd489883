package lint

// danger is one thing of the tables below.
type danger struct {
	fatal bool   // an error, not a warning
	why   string // completes "gh alias …"
}

// probe is a value that a position should not accept.
type probe struct{ value, why string }

const (
	runs    = "runs other programs"
	secrets = "prints credentials" //nolint:gosec // words, not a credential
	calls   = "reaches everything that the account may do"
	reads   = "reads or writes files that the caller names"
	other   = "reaches beyond the resources that are pinned"
	client  = "may print secrets of its objects (client_secret)"
)

//nolint:gochecknoglobals // tables
var (
	shells = words("sh", "ash", "bash", "dash", "zsh", "ksh", "mksh", "fish", "csh", "tcsh", "pwsh", "powershell", "cmd", "busybox", "toybox", "nu", "elvish", "xonsh")

	interpreters = words("python", "python2", "python3", "pypy", "pypy3", "node", "nodejs", "deno", "bun", "tsx", "ts-node", "perl", "ruby", "irb", "php", "lua",
		"luajit", "tclsh", "wish", "osascript", "awk", "gawk", "mawk", "sed", "rscript", "julia", "guile", "racket", "java", "jshell", "groovy", "scala", "ghci", "erl",
		"elixir", "sqlite3", "psql", "mysql", "vim", "vi", "nvim", "emacs", "ed", "ex", "less", "more", "man", "gdb", "lldb", "jq", "yq", "m4", "dc", "bc")

	// evaluators are options by which interpreters take a program.
	evaluators = words("-c", "-e", "-E", "-r", "-p", "--eval", "--print", "--command", "--execute", "-i", "--interactive", "-m", "-M", "-n", "-x")

	runners = words("env", "xargs", "find", "ssh", "scp", "sftp", "rsync", "sudo", "doas", "su", "runuser", "nohup", "nice", "ionice", "timeout", "time", "setsid", "stdbuf",
		"strace", "ltrace", "watch", "parallel", "entr", "flock", "script", "screen", "tmux", "expect", "socat", "nc", "ncat", "netcat", "telnet", "chroot", "unshare", "nsenter",
		"systemd-run", "at", "batch", "crontab", "make", "ninja", "cmake", "npx", "pnpx", "bunx", "uvx", "pipx", "docker", "podman", "nerdctl", "ctr", "tar", "zip", "git-shell", "ld.so", "dd", "tee", "cp", "mv", "install", "ln", "chmod", "chown")

	// verbs are subcommands of known CLIs, each a run of words in the fixed
	// arguments.
	verbs = map[string]map[string]danger{
		"gh": {
			"alias": {true, runs}, "extension": {true, runs}, "extensions": {true, runs}, "ext": {true, runs}, "api": {true, calls}, "browse": {true, "opens a browser, which is a program of the owner's choice"},
			"codespace": {true, runs}, "cs": {true, runs}, "auth token": {true, secrets}, "auth status": {false, "can print credentials with --show-token"},
			"auth": {true, "changes or prints credentials"}, "config": {true, "sets the editor, pager and browser that later commands run"},
			"repo clone": {false, runs + " (git)"}, "pr checkout": {false, runs + " (git)"}, "run download": {false, reads}, "release download": {false, reads},
			"release upload": {false, reads}, "gist create": {false, reads}, "workflow run": {false, "starts a workflow"}, "secret": {false, "changes what workflows can read"},
			"search": {false, other}, "status": {false, other}, "gist": {false, other}, "repo list": {false, other}, "issue develop": {false, runs + " (git)"}, "release create": {false, reads},
			"variable": {false, "changes what workflows can read"}, "run watch": {false, "waits for as long as a run does"}, "cache": {false, "can delete"},
			"ssh-key": {true, "changes who can log in"}, "gpg-key": {true, "changes whose signature counts"}, "attestation": {false, reads}, "copilot": {true, runs}, "agent-task": {true, runs},
		},
		"git": {
			"config": {true, "sets programs that later commands run"}, "submodule": {true, runs}, "bisect": {true, runs}, "filter-branch": {true, runs}, "difftool": {true, runs},
			"mergetool": {true, runs}, "rebase": {true, runs}, "daemon": {true, "serves files"}, "hook": {true, runs}, "upload-pack": {true, runs}, "receive-pack": {true, runs},
			"shell": {true, runs}, "instaweb": {true, runs}, "gui": {true, runs}, "help": {true, runs}, "send-email": {true, runs}, "maintenance": {true, runs}, "credential": {true, secrets},
			"clone": {false, "follows ext:: and file addresses unless the address is pinned"}, "fetch": {false, "follows ext:: and file addresses unless the address is pinned"},
			"pull": {false, "runs hooks of the repository"}, "push": {false, "runs hooks of the repository"}, "commit": {false, "runs hooks and an editor"}, "archive": {false, reads},
			"apply": {false, reads}, "am": {false, runs}, "grep": {false, "can open a pager with -O"}, "diff": {false, "runs external diff programs of the configuration"},
		},
		"stripe": {
			"listen": {true, "forwards events to an address"}, "login": {true, "changes credentials"}, "logout": {true, "changes credentials"}, "config": {true, "changes or prints credentials"},
			"get": {true, calls}, "post": {true, calls}, "delete": {true, calls}, "open": {true, "opens a browser"}, "fixtures": {true, reads}, "trigger": {false, "makes objects"},
			"serve": {true, "serves files"}, "samples": {true, runs}, "plugin": {true, runs}, "logs": {false, "prints requests of everyone"}, "resources": {false, calls},
			"switch": {true, "changes credentials"}, "sandbox": {true, "changes credentials"}, "whoami": {false, "shows which accounts are authorised"}, "agent": {true, runs}, "auto-update": {true, runs}, "provision": {true, runs},
			"apps": {true, runs}, "projects": {true, runs}, "generate": {true, runs}, "tools": {true, runs}, "pay": {true, "moves money"}, "data": {false, calls},
			"payment_intents": {false, client}, "setup_intents": {false, client}, "checkout": {false, client}, "events": {false, client}, "customer_sessions": {false, client}, "ephemeral_keys": {true, secrets},
			"account_links": {false, client}, "account_sessions": {false, client}, "login_links": {true, secrets}, "tokens": {false, client}, "terminal connection_tokens": {true, secrets}, "webhook_endpoints create": {true, secrets},
			"file_links": {false, "makes files open without a key"}, "issuing cards": {false, "can print the numbers of cards"},
		},
		"lark-cli": {
			"api": {true, calls}, "auth": {true, "changes or prints credentials"}, "config": {true, "changes or prints credentials"}, "update": {true, runs}, "upgrade": {true, runs},
			"event": {false, "listens to events of everyone"}, "schema": {false, "prints every method"}, "profile": {true, "changes credentials"}, "skills": {true, runs}, "agents": {true, runs}, "doctor": {false, "prints the configuration"},
			"im +messages-resources-download": {false, reads}, "im +messages-mget": {false, other}, "im +threads-messages-list": {false, other}, "im +messages-search": {false, other}, "im +chat-search": {false, other},
			"drive +download": {false, reads}, "drive +upload": {false, reads}, "docs +search": {false, other}, "docs +media-download": {false, reads}, "contact": {false, other}, "mail": {false, other},
		},
		"kubectl": {
			"exec": {true, runs}, "run": {true, runs}, "cp": {true, reads}, "port-forward": {true, "forwards a port"}, "proxy": {true, calls}, "debug": {true, runs}, "attach": {true, runs},
			"config": {true, secrets}, "plugin": {true, runs}, "edit": {true, runs}, "apply": {false, calls}, "create": {false, calls},
		},
		"aws":       {"configure": {true, secrets}, "ssm": {true, runs}, "ecs execute-command": {true, runs}, "sts": {true, secrets}, "s3": {false, reads}, "lambda invoke": {false, reads}},
		"gcloud":    {"auth": {true, secrets}, "config": {true, "changes credentials"}, "compute ssh": {true, runs}, "compute scp": {true, runs}, "components": {true, runs}},
		"npm":       {"run": {true, runs}, "run-script": {true, runs}, "exec": {true, runs}, "x": {true, runs}, "install": {true, runs}, "ci": {true, runs}, "start": {true, runs}, "test": {true, runs}, "config": {true, secrets}, "token": {true, secrets}},
		"go":        {"run": {true, runs}, "generate": {true, runs}, "test": {true, runs}, "tool": {true, runs}, "build": {false, runs}, "vet": {false, runs}, "env": {false, "sets programs that later commands run"}},
		"cargo":     {"run": {true, runs}, "test": {true, runs}, "build": {true, runs}, "install": {true, runs}},
		"terraform": {"apply": {false, runs}, "console": {true, runs}, "init": {false, runs}},
		"op":        {"run": {true, runs}, "read": {true, secrets}, "inject": {true, secrets}, "item get": {false, secrets}},
		"vault":     {"read": {false, secrets}, "print": {true, secrets}, "ssh": {true, runs}, "token": {true, secrets}},
	}

	// options are dangerous in any CLI, unless they are pinned to listed values.
	options = map[string]danger{
		"--editor": {true, runs}, "--pager": {true, runs}, "--browser": {true, runs}, "--exec": {true, runs}, "-exec": {true, runs}, "--exec-path": {true, runs},
		"--upload-pack": {true, runs}, "--receive-pack": {true, runs}, "--command": {true, runs}, "--eval": {true, runs}, "--shell": {true, runs}, "--rsh": {true, runs},
		"--hook": {true, runs}, "--plugin": {true, runs}, "--extension": {true, runs}, "--to-command": {true, runs}, "--checkpoint-action": {true, runs}, "--use-compress-program": {true, runs},
		"--open-files-in-pager": {true, runs}, "--ext-diff": {true, runs}, "--textconv": {true, runs}, "--run": {true, runs}, "--script": {true, runs}, "--require": {true, runs}, "--import": {true, runs}, "--loader": {true, runs}, "--init-file": {true, runs},
		"--web": {true, "opens a browser, which is a program of the owner's choice"}, "--open": {true, "opens a program of the owner's choice"},
		"--jq": {true, "is a program that can print the environment (env.TOKEN)"}, "--template": {true, "is a program, or names a file"}, "--query": {false, "may be a program of its own"}, "--filter": {false, "may be a program of its own"}, "--format": {false, "may be a program of its own"},
		"--config": {true, "names a configuration, which can name programs"}, "--config-env": {true, "names a configuration, which can name programs"}, "--profile": {false, "chooses another account"}, "--account": {false, "chooses another account"}, "--user": {false, "chooses another account"}, "--api-key": {true, "chooses another account"}, "--token": {true, "chooses another account"},
		"--output": {false, "may name a file to write"}, "--output-file": {true, reads}, "--out": {false, "may name a file to write"}, "--outfile": {true, reads}, "--log-file": {true, reads}, "--dest": {false, reads}, "--directory": {false, reads}, "--dir": {false, reads}, "--git-dir": {true, reads}, "--work-tree": {true, reads}, "--cwd": {true, reads}, "--chdir": {true, reads},
		"--file": {false, reads}, "--body-file": {false, reads}, "--notes-file": {false, reads}, "--input": {false, reads}, "--input-file": {false, reads}, "--cli-input-json": {false, reads}, "--data-file": {false, reads}, "--from-file": {false, reads}, "--env-file": {true, secrets}, "--kubeconfig": {true, "names a configuration, which can name programs"},
		"--verbose": {false, "may print credentials"}, "--debug": {false, "may print credentials"}, "--show-token": {true, secrets}, "--show-secrets": {true, secrets}, "--reveal": {true, secrets}, "--unmask": {true, secrets}, "--with-decryption": {true, secrets},
		"--show-headers": {false, "may print credentials"}, "--log-level": {false, "may print credentials"}, "--log-http": {false, "may print credentials"}, "--trace": {false, "may print credentials"},
		"--hostname": {true, "sends the credentials to another server"}, "--host": {true, "sends the credentials to another server"}, "--server": {true, "sends the credentials to another server"}, "--api-base": {true, "sends the credentials to another server"}, "--api-url": {true, "sends the credentials to another server"}, "--base-url": {true, "sends the credentials to another server"}, "--endpoint": {true, "sends the credentials to another server"}, "--endpoint-url": {true, "sends the credentials to another server"}, "--proxy": {true, "sends the credentials to another server"},
		"--insecure": {true, "trusts any server"}, "--no-verify": {false, "leaves out a check"}, "--no-verify-ssl": {true, "trusts any server"}, "--force": {false, "leaves out a check"}, "--yes": {false, "leaves out a check"},
	}

	// own are options of one CLI. An empty danger lifts what options has.
	own = map[string]map[string]danger{
		"git": {"-c": {true, "sets programs that the command runs"}, "-C": {true, reads}, "-u": {false, runs}, "-O": {true, runs}, "-x": {true, runs}},
		"gh": {
			"-w": {true, "opens a browser"}, "-q": {true, "is a program that can print the environment (env.TOKEN)"}, "-t": {false, "is a program on commands that list"}, "-F": {false, reads}, "-e": {false, "may open an editor"}, "-R": {false, "names another repository, of another server too"}, "--repo": {false, "names another repository, of another server too (HOST/OWNER/REPO)"},
			"--search": {false, "can name other repositories (repo:other/one)"}, "-S": {false, "can name other repositories (repo:other/one)"}, "--log": {false, "prints what jobs printed, which may hold secrets"}, "--log-failed": {false, "prints what jobs printed, which may hold secrets"}, "--verbose": {},
		},
		"stripe": {
			"-d": {true, "sets any parameter of the request"}, "--data": {true, "sets any parameter of the request"}, "-e": {false, client}, "--expand": {false, client}, "--stripe-account": {false, "chooses another account"}, "--stripe-context": {false, "chooses another account"},
			"--live": {false, "reaches live mode"}, "-p": {true, "chooses another account"}, "--project-name": {true, "chooses another account"}, "-s": {false, "may print credentials"}, "--dry-run": {false, "prints the request"},
		},
		"lark-cli": {
			"--as": {false, "chooses another identity"}, "-q": {true, "is a program"}, "--jq-records": {true, "is a program"}, "--params": {true, "sets any parameter of the request"}, "--data": {true, "sets any parameter of the request"},
			"--json": {false, reads + " (@file)"}, "--filter-json": {false, reads + " (@file)"}, "--sort-json": {false, reads + " (@file)"}, "--download-resources": {false, reads}, "--output-dir": {false, reads}, "--user-id": {false, "names another person"}, "--doc": {false, "names another document, by its address too"}, "--base-token": {false, "names another base, by its address too"}, "--chat-id": {false, "names another chat"},
		},
		"tar": {"-I": {true, runs}},
	}

	// probes are texts that lead a CLI from the pinned resource to another.
	probes = map[string][]probe{
		"gh":     {{"https://github.com/other/one/issues/1", "names another repository"}, {"../../../other/one", "leads out of the repository"}},
		"stripe": {{"../charges", "leads to another kind of object"}, {"cus_1?expand[]=x", "adds to the request"}},
	}

	// variables choose the account or the resource, which options would be
	// declared for; those that steer what runs the grammar refuses by itself.
	variables = words("GH_REPO", "GH_HOST", "GH_TOKEN", "GITHUB_TOKEN", "KUBECONFIG", "AWS_PROFILE", "AWS_CONFIG_FILE", "AWS_ENDPOINT_URL", "STRIPE_API_KEY", "DOCKER_HOST", "VAULT_ADDR")
)

func words(list ...string) map[string]bool {
	m := make(map[string]bool, len(list))
	for _, w := range list {
		m[w] = true
	}
	return m
}
