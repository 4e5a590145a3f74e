package cmdline

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
)

// ReadPrivate reads a file that contains credentials, or that determines what this process runs. It returns
// an error if the group or all users of the machine can write the file, and a warning, which is otherwise
// empty, if all users can read it. The group may read it: a service often reads a file of root by its group.
//
// The mode of a pipe or a device, such as /dev/stdin, is not checked, and no mode is checked on Windows,
// where it does not describe who has access.
func ReadPrivate(name string) (text []byte, warning string, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, "", err
	}
	if runtime.GOOS != "windows" && info.Mode().IsRegular() {
		if warning, err = checkPrivate(name, info.Mode().Perm()); err != nil {
			return nil, "", err
		}
	}
	text, err = io.ReadAll(f)
	return text, warning, err
}

// checkPrivate returns an error if a mode lets others write the file, and a warning if it lets all users
// read it.
func checkPrivate(name string, mode fs.FileMode) (warning string, err error) {
	const groupAndOthersWrite, othersRead = 0o022, 0o004
	switch {
	case mode&groupAndOthersWrite != 0:
		return "", fmt.Errorf("%s has mode %04o, so other users of this machine can change it: run chmod go-w %s, and check its content", name, mode, name)
	case mode&othersRead != 0:
		return fmt.Sprintf("%s has mode %04o, so all users of this machine can read it: run chmod o-r %s", name, mode, name), nil
	}
	return "", nil
}
