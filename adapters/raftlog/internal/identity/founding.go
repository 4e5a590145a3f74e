// Package identity decides which peer may take part in a cluster.
//
// Names do not suffice for that. Two clusters can be founded with one name, a peer can be
// started with an empty directory or with an old copy of it, and two processes can use copies
// of one directory. Each of them could vote a second time in a term, or acknowledge entries
// that it does not keep. So a peer has, besides its names,
//
//   - the founding identity, a hash of the configuration with which the cluster was founded;
//   - the instance, a random text that is made together with the directory;
//   - the start, the number of processes that have used the directory;
//   - the process, a random text of the running process;
//
// and sends them in every handshake (link.Claim). A [Registry] holds what a peer knows of the
// others, and decides.
package identity

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"time"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// size is how many bytes an identity has, of which each is two hexadecimal digits.
const size = 16

// New returns a random identity, of an instance or a process.
func New() string {
	b := make([]byte, size)
	rand.Read(b) //nolint:errcheck // it never fails
	return hex.EncodeToString(b)
}

// Founding returns the identity of a cluster that is founded with that configuration. The order
// of the voters has no meaning.
func Founding(cluster string, voters []api.Peer, window, election time.Duration) string {
	h := sha256.New()
	text := func(s string) {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(s))))
		h.Write([]byte(s))
	}
	text("raftlog founding 1")
	text(cluster)
	for _, v := range Sorted(voters) {
		text(v.ID)
		text(v.Addr)
	}
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(window)))
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(election)))
	return hex.EncodeToString(h.Sum(nil)[:size])
}

// Recovered returns the identity of a cluster that is recovered from data of the one with that
// identity. No two recoveries have the same.
func Recovered(founding string) string {
	sum := sha256.Sum256([]byte("raftlog recovered " + founding + " " + New()))
	return hex.EncodeToString(sum[:size])
}

// Sorted returns the peers by their IDs.
func Sorted(peers []api.Peer) []api.Peer {
	return slices.SortedFunc(slices.Values(peers), func(a, b api.Peer) int { return cmp.Compare(a.ID, b.ID) })
}
