package ownerfile

import (
	"errors"
	"os"
	"unsafe"

	"golang.org/x/sys/windows"
)

func open(path string) (*os.File, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if info.Mode()&os.ModeSymlink != 0 {
		return nil, &UnsafeError{Path: path, Why: "is a symbolic link"}
	}
	return os.Open(path)
}

// checkLink refuses every link.
func checkLink(path string, _ os.FileInfo) error {
	return &UnsafeError{Path: path, Why: "is a symbolic link"}
}

const writes = windows.FILE_WRITE_DATA | windows.FILE_APPEND_DATA | windows.DELETE | windows.WRITE_DAC | windows.WRITE_OWNER |
	windows.GENERIC_WRITE | windows.GENERIC_ALL

// checkAccess reads the access list: only this user, the system and the
// administrators may have what a denies to others.
func checkAccess(path string, f *os.File, _ os.FileInfo, a Access) error {
	sd, err := windows.GetSecurityInfo(windows.Handle(f.Fd()), windows.SE_FILE_OBJECT,
		windows.OWNER_SECURITY_INFORMATION|windows.DACL_SECURITY_INFORMATION)
	if err != nil {
		return err
	}
	trusted, err := trustedSIDs()
	if err != nil {
		return err
	}
	owner, _, err := sd.Owner()
	if err != nil || !contains(trusted, owner) {
		return errors.Join(err, &UnsafeError{Path: path, Why: "belongs to another user"})
	}
	acl, _, err := sd.DACL()
	if err != nil || acl == nil {
		return errors.Join(err, &UnsafeError{Path: path, Why: "has no access list"})
	}
	for i := range uint32(acl.AceCount) {
		var ace *windows.ACCESS_ALLOWED_ACE
		if err := windows.GetAce(acl, i, &ace); err != nil {
			return err
		}
		if ace.Header.AceType != windows.ACCESS_ALLOWED_ACE_TYPE {
			continue
		}
		sid := (*windows.SID)(unsafe.Pointer(&ace.SidStart)) //nolint:gosec // the list holds the SID in place
		if contains(trusted, sid) {
			continue
		}
		if a == Private || uint32(ace.Mask)&writes != 0 {
			return &UnsafeError{Path: path, Why: "others have access to it"}
		}
	}
	return nil
}

func trustedSIDs() ([]*windows.SID, error) {
	user, err := windows.GetCurrentProcessToken().GetTokenUser()
	if err != nil {
		return nil, err
	}
	system, err := windows.CreateWellKnownSid(windows.WinLocalSystemSid)
	if err != nil {
		return nil, err
	}
	admins, err := windows.CreateWellKnownSid(windows.WinBuiltinAdministratorsSid)
	if err != nil {
		return nil, err
	}
	return []*windows.SID{user.User.Sid, system, admins}, nil
}

func contains(list []*windows.SID, sid *windows.SID) bool {
	for _, s := range list {
		if sid != nil && s.Equals(sid) {
			return true
		}
	}
	return false
}

func makePrivate(f *os.File) error {
	user, err := windows.GetCurrentProcessToken().GetTokenUser()
	if err != nil {
		return err
	}
	acl, err := windows.ACLFromEntries([]windows.EXPLICIT_ACCESS{{
		AccessPermissions: windows.GENERIC_ALL,
		AccessMode:        windows.SET_ACCESS,
		Trustee: windows.TRUSTEE{
			TrusteeForm:  windows.TRUSTEE_IS_SID,
			TrusteeValue: windows.TrusteeValueFromSID(user.User.Sid),
		},
	}}, nil)
	if err != nil {
		return err
	}
	return windows.SetNamedSecurityInfo(f.Name(), windows.SE_FILE_OBJECT,
		windows.DACL_SECURITY_INFORMATION|windows.PROTECTED_DACL_SECURITY_INFORMATION, nil, nil, acl, nil)
}

// syncDir does nothing: directories cannot be flushed here.
func syncDir(string) error { return nil }

// CheckDirectory accepts every directory: the access lists of the files decide.
func CheckDirectory(string) error { return nil }
