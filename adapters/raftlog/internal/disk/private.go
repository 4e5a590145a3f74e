package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// OpenPrivate opens a file for reading that another program has created for this process, such as a file of
// secrets. It returns an error if the file is not a regular file, for example a link, by which another user
// could make this process read any file that it may read. It also returns an error if another user could have
// written the file: the file must belong to the user of this process or to root, and only its owner may have
// permission to write it. On Windows, whose permissions differ, OpenPrivate does not check the owner and the
// permissions.
func OpenPrivate(path string) (File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|openDirectly, 0)
	if err != nil {
		return nil, withRemedy(err, path)
	}
	info, err := f.Stat() // examine the open file and not path, which may name another file by now
	if err == nil {
		owner, known := ownerOf(info)
		err = checkPrivate(info.Mode(), owner, os.Geteuid(), known)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return osFile{f}, nil
}

// withRemedy adds to an error of OpenPrivate what the user can do if path is a link, or another user has
// created the file.
func withRemedy(err error, path string) error {
	switch {
	case errors.Is(err, syscall.ELOOP), errors.Is(err, syscall.EMLINK): // path is a link, which O_NOFOLLOW rejects
		return fmt.Errorf("%w: a link is not followed: move the file to %s", err, path)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: the user of this process must be able to read the file: create it as that user, or change its owner to that user (chown) before it is moved to %s", err, path)
	}
	return err
}

// checkPrivate returns an error if another user than self could have written a file with the given mode and
// owner. known is false on systems whose files have no owners.
func checkPrivate(mode fs.FileMode, owner, self int, known bool) error {
	switch {
	case !mode.IsRegular():
		return fmt.Errorf("not a regular file, but %v", mode.Type())
	case !known:
		return nil
	case owner != self && owner != 0:
		return fmt.Errorf("the file belongs to user %d, and must belong to user %d, which runs this process, or to root", owner, self)
	case mode.Perm()&0o022 != 0:
		return fmt.Errorf("the file has mode %04o, so that other users can change it: only its owner may write it", mode.Perm())
	}
	return nil
}
