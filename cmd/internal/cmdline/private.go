package cmdline

import (
	"fmt"
	"io/fs"
	"runtime"
)

// ReadPrivate reads a regular file that contains credentials, or that determines what this process
// runs. It returns an error if all users of the machine or the group can write the file, and a warning,
// which is otherwise empty, if all users can read it. The group may read it: a service often reads a
// file of root by its group. The group may write the file if it is the private group of the owner, as
// with the umask 002 that is usual on Debian.
//
// A link to a regular file is read as well. On Windows the mode is not checked, because it does not describe
// who has access.
func ReadPrivate(name string) (text []byte, warning string, err error) {
	return readPrivate(name, false)
}

// ReadConfig reads a file like ReadPrivate, but only once in the life of the process, so it may also be
// /dev/stdin or /dev/fd/N, whose mode is not checked.
func ReadConfig(name string) (text []byte, warning string, err error) { return readPrivate(name, true) }

func readPrivate(name string, once bool) (text []byte, warning string, err error) {
	f, info, err := openFile(name, once)
	if err != nil {
		return nil, "", err
	}
	defer f.Close()
	if runtime.GOOS != "windows" && info.Mode().IsRegular() {
		if warning, err = checkPrivate(name, info.Mode().Perm(), hasPrivateGroup(info)); err != nil {
			return nil, "", err
		}
	}
	text, err = ReadLimited(f, name, maxSize)
	return text, warning, err
}

// checkPrivate returns an error if a mode lets others write the file, and a warning if it lets all users
// read it. privateGroup reports whether the only member of the group is the owner.
func checkPrivate(name string, mode fs.FileMode, privateGroup bool) (warning string, err error) {
	const groupWrite, othersWrite, othersRead = 0o020, 0o002, 0o004
	switch {
	case mode&othersWrite != 0, mode&groupWrite != 0 && !privateGroup:
		return "", fmt.Errorf("%s has mode %04o, so other users of this machine can change it: run chmod go-w %s, and check its content", name, mode, name)
	case mode&othersRead != 0:
		return fmt.Sprintf("%s has mode %04o, so all users of this machine can read it: run chmod o-r %s, or set defaultMode: 0400 in its volume if Kubernetes has mounted it", name, mode, name), nil
	}
	return "", nil
}

// isPrivateGroup reports whether a group is the group that useradd creates for the user, which has the same
// number. It returns false for the group of root: on some systems all administrators are members of it, and
// in some containers all users are.
func isPrivateGroup(user, group uint32) bool { return user == group && user != 0 }
