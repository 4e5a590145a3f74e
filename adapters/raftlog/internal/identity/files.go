package identity

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/disk"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/filelog"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/link"
)

// The names of the files in a peer's directory.
const (
	OwnerFile = "peer.json"  // an Owner
	peersFile = "peers.json" // the peers of a Registry
	markFile  = "instance"   // in the directory of the log: the instance that the log belongs to
)

// Format is the format of the directory. Formats 1 and 2 are those of versions before the first
// release: 1 had no identities, and the records of 2 were JSON.
const Format = 3

// Owner is what a directory says of itself.
type Owner struct {
	Format  int    `json:"format"`
	Cluster string `json:"cluster"`
	Peer    string `json:"peer"`
	// Founding is the identity of the cluster; empty while the peer has not joined.
	Founding string `json:"founding,omitempty"`
	// Former are the identities that the cluster had before it was recovered.
	Former   []string `json:"former,omitempty"`
	Instance string   `json:"instance"`
	Starts   uint64   `json:"starts"`
	// Complete says that the directory has a snapshot and a log. If one of them is missing
	// then, it was lost.
	Complete bool `json:"complete"`
	// Sum is the CRC32C of the file without it.
	Sum uint32 `json:"sum"`
}

func (o Owner) checksum() uint32 {
	o.Sum = 0
	text, err := json.Marshal(o)
	if err != nil {
		panic(err) // strings and numbers
	}
	return crc32.Checksum(text, crc32.MakeTable(crc32.Castagnoli))
}

// Errors of ReadOwner, for errors.Is, besides io/fs.ErrNotExist.
var (
	// ErrFormat: the directory is of a format that this program does not know.
	ErrFormat = errors.New("unknown format of the directory")
	// ErrDamaged: the file cannot be read as what it should be.
	ErrDamaged = errors.New("damaged")
)

// ReadOwner reads whose directory it is.
func ReadOwner(fsys disk.FS) (o Owner, err error) {
	text, err := disk.ReadSmall(fsys, OwnerFile)
	if err != nil {
		return o, err
	}
	if err := json.Unmarshal(text, &o); err != nil {
		return o, fmt.Errorf("%s: %w: %w", OwnerFile, ErrDamaged, err)
	}
	switch {
	case o.Format == 1 || o.Format == 2:
		return o, fmt.Errorf("%w: format %d of a version before the first release is not supported: start a new cluster, or use the program that has written it", ErrFormat, o.Format)
	case o.Format != Format:
		return o, fmt.Errorf("%w: format %d; this version supports format %d", ErrFormat, o.Format, Format)
	case o.Instance == "" || o.Sum != o.checksum():
		return o, fmt.Errorf("%s: %w: its checksum is wrong", OwnerFile, ErrDamaged)
	}
	return o, nil
}

// Write makes the owner's file, durably.
func (o Owner) Write(fsys disk.FS) error {
	o.Sum = o.checksum()
	return write(fsys, OwnerFile, o)
}

// Claim is what the owner's process says in handshakes.
func (o Owner) Claim(process string) link.Claim {
	return link.Claim{Founding: o.Founding, Instance: o.Instance, Start: o.Starts, Process: process}
}

// ReadPeers reads what the directory's peer knows of others; nothing if it has met none.
func ReadPeers(fsys disk.FS) (peers map[string]Known, err error) {
	text, err := disk.ReadSmall(fsys, peersFile)
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]Known{}, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &peers); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", peersFile, ErrDamaged, err)
	}
	return peers, nil
}

// WritePeers makes the file that ReadPeers reads, durably.
func WritePeers(fsys disk.FS, peers map[string]Known) error { return write(fsys, peersFile, peers) }

func write(fsys disk.FS, name string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return disk.Replace(fsys, name, append(text, '\n'))
}

// MarkLog notes in the log's directory to which instance the log belongs.
func MarkLog(fsys disk.FS, dir, instance string) error {
	return disk.Replace(fsys, path.Join(dir, markFile), []byte(instance))
}

// CheckLog finds out whether the log of a directory is there, and belongs to it: if not, it
// returns a text that says what is wrong. It is called before the log is opened, which would make
// an empty one.
func (o Owner) CheckLog(fsys disk.FS, dir string) (wrong string, err error) {
	if !o.Complete {
		return "", nil
	}
	mark, err := disk.ReadSmall(fsys, path.Join(dir, markFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "the log was lost", nil
	case err != nil:
		return "", err
	case string(mark) != o.Instance:
		return "the log belongs to another directory", nil
	}
	names, err := fsys.List(dir)
	if err != nil {
		return "", err
	}
	if !slices.ContainsFunc(names, func(name string) bool { return strings.HasSuffix(name, filelog.Suffix) }) {
		return "the files of the log were lost", nil
	}
	return "", nil
}
