package zktest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/wire"
)

// FuzzACL checks that an ACL with any scheme and ID, except world and ip, permits nothing to a client without
// credentials, and that getACL shows no hash of a password to other clients.
func FuzzACL(f *testing.F) {
	f.Add("digest", "me:secret", int32(31), "me:secret")
	f.Add("ip", "10.0.0.0/8", int32(31), "")
	f.Add("auth", "", int32(1), "a:b")
	f.Fuzz(func(t *testing.T, scheme, id string, perms int32, credential string) {
		c := newACLCache()
		own := []authID{{"ip", "127.0.0.1"}, {"digest", digestID(credential)}}
		a, code := c.expand([]wire.ACL{{Perms: perms, Scheme: scheme, ID: id}}, own)
		if code != codeOK {
			return
		}
		if scheme != "world" && scheme != "ip" {
			for _, p := range []int32{permRead, permWrite, permCreate, permDelete, permAdmin} {
				require.False(t, a.allows(p, own[:1]), "%s:%s permits %d", scheme, id, p)
			}
		}
		for _, m := range a.withoutPasswords() {
			_, hash, _ := strings.Cut(m.ID, ":")
			require.False(t, m.Scheme == "digest" && hash != "x", "%q shows a hash", m.ID)
		}
	})
}
