package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// OpenPrivate opens a file for reading that another program has created for this process. It returns an error
// if the file is not a regular file, or if another user could have written it: it must belong to the user of
// this process or to root, and only its owner may write it. Windows has other permissions, which are not checked.
func OpenPrivate(path string) (File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|openNonblock, 0)
	if err != nil {
		return nil, withOwnerRemedy(err, path)
	}
	info, err := f.Stat() // of the opened file, which path may not name any more
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

// withOwnerRemedy adds to an error of OpenPrivate what to do if another user has created the file.
func withOwnerRemedy(err error, path string) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w: the user of this process must be able to read the file: create it as that user, or change its owner to that user (chown) before it is moved to %s", err, path)
	}
	return err
}

// checkPrivate returns an error if another user could have written a file with the mode and the owner. known is
// false if the system has no owners.
func checkPrivate(mode fs.FileMode, owner, self int, known bool) error {
	switch {
	case !mode.IsRegular():
		return fmt.Errorf("it is not a regular file, but %v", mode.Type())
	case !known:
		return nil
	case owner != self && owner != 0:
		return fmt.Errorf("it belongs to user %d, and must belong to user %d, which runs this process, or to root", owner, self)
	case mode.Perm()&0o022 != 0:
		return fmt.Errorf("it has mode %04o, so that other users can change it: only its owner may write it", mode.Perm())
	}
	return nil
}
