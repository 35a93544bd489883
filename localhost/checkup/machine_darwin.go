package checkup

import "os"

func systemFacts(dir string) Facts {
	f := Facts{System: "darwin", UID: os.Geteuid()}
	f.disk(dir)
	f.files()
	return f
}
