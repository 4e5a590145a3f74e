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

// These are the names of the files in a peer's directory.
const (
	OwnerFile    = "peer.json"  // contains the Owner of the directory
	PeersFile    = "peers.json" // contains the Peers of the owner's Registry
	instanceFile = "instance"   // the file in the log's directory with the ID of the directory that the log belongs to
)

// Format is the current format of a peer's directory. Formats 1 and 2 are from versions before the
// first release: format 1 contained no identities, and format 2 contained records in JSON.
const Format = 3

// Owner describes the peer that owns a directory.
type Owner struct {
	Format  int    `json:"format"`
	Cluster string `json:"cluster"`
	Peer    string `json:"peer"`
	// Founding is the identity of the cluster. It is empty until the peer has joined a cluster.
	Founding string `json:"founding,omitempty"`
	// Founders describes the configuration with which the cluster was founded, for error messages. It
	// is empty if an earlier version has written the directory.
	Founders string `json:"founders,omitempty"`
	// Former contains the identities that the cluster had before it was recovered.
	Former []string `json:"former,omitempty"`
	// Instance is the random identity of the directory. Starts is the number of processes that have
	// used the directory.
	Instance string `json:"instance"`
	Starts   uint64 `json:"starts"`
	// Complete becomes true when the directory contains both a snapshot and a log for the first time. If one
	// of them is missing later, it was lost.
	Complete bool `json:"complete"`
	// Sum is the CRC32C of the encoded Owner with a Sum of zero.
	Sum uint32 `json:"sum"`
}

func (o Owner) checksum() uint32 {
	o.Sum = 0
	return checksum(o)
}

// checksum returns the CRC32C of v encoded as JSON.
func checksum(v any) uint32 {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // cannot happen, because v contains only strings and numbers
	}
	return crc32.Checksum(text, crc32.MakeTable(crc32.Castagnoli))
}

// These are the errors of ReadOwner, in addition to io/fs.ErrNotExist.
var (
	// ErrFormat is returned if the directory has a format that this version of the program does not
	// support.
	ErrFormat = errors.New("the directory has an unknown format")
	// ErrDamaged is returned if a file of a peer's directory cannot be decoded, or has a wrong
	// checksum.
	ErrDamaged = errors.New("the file is damaged")
)

// ReadOwner reads which peer owns a directory.
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
		return o, fmt.Errorf("%s: %w: wrong checksum", OwnerFile, ErrDamaged)
	}
	return o, nil
}

// Write replaces the file that ReadOwner reads. The file is durable when Write returns.
func (o Owner) Write(fsys disk.FS) error {
	o.Sum = o.checksum()
	return writeJSON(fsys, OwnerFile, o)
}

// Claim returns the claim that a process which uses the directory sends in handshakes. process is the
// random identity of that process.
func (o Owner) Claim(process string) link.Claim {
	return link.Claim{Founding: o.Founding, Founders: o.Founders, Instance: o.Instance, Start: o.Starts, Process: process}
}

// peersContent is the content of the file of the known peers.
type peersContent struct {
	Peers map[string]Known `json:"peers"`
	// Sum is the CRC32C of Peers encoded as JSON.
	Sum *uint32 `json:"sum"`
}

// ReadPeers reads the peers that the owner of a directory knows, by peer ID. The map is empty if the
// file does not exist.
func ReadPeers(fsys disk.FS) (map[string]Known, error) {
	text, err := disk.ReadSmall(fsys, PeersFile)
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]Known{}, nil
	}
	if err != nil {
		return nil, err
	}
	var c peersContent
	if err := json.Unmarshal(text, &c); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", PeersFile, ErrDamaged, err)
	}
	if c.Peers == nil || c.Sum == nil || *c.Sum != checksum(c.Peers) {
		return nil, fmt.Errorf("%s: %w: wrong checksum", PeersFile, ErrDamaged)
	}
	return c.Peers, nil
}

// WritePeers replaces the file that ReadPeers reads. The file is durable when WritePeers returns.
func WritePeers(fsys disk.FS, peers map[string]Known) error {
	if peers == nil {
		peers = map[string]Known{}
	}
	return writeJSON(fsys, PeersFile, peersContent{Peers: peers, Sum: new(checksum(peers))})
}

func writeJSON(fsys disk.FS, name string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return disk.Replace(fsys, name, append(text, '\n'))
}

// MarkLog writes the identity of the directory that a log belongs to into the directory of the log.
func MarkLog(fsys disk.FS, dir, instance string) error {
	return disk.Replace(fsys, path.Join(dir, instanceFile), []byte(instance))
}

// CheckLog checks that the log in dir exists and belongs to the owner's directory. If not, it returns a
// description of the defect. The caller must call CheckLog before it opens the log, because opening
// creates an empty log.
func (o Owner) CheckLog(fsys disk.FS, dir string) (defect string, err error) {
	if !o.Complete {
		return "", nil
	}
	mark, err := disk.ReadSmall(fsys, path.Join(dir, instanceFile))
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
