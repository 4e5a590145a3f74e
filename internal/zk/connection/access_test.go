package connection

import (
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
)

// Others returns what the ACL of a znode permits to clients other than those that the participant's own
// ACL names.
func TestOthers(t *testing.T) {
	me, mallory := zk.DigestACL(zk.PermAll, "me", "secret")[0], zk.DigestACL(zk.PermAll, "mallory", "secret")[0]
	world := func(perms int32) zk.ACL { return zk.WorldACL(perms)[0] }
	ip := zk.ACL{Perms: zk.PermAll, Scheme: "ip", ID: "10.0.0.0/8"}
	auth := zk.AuthACL(zk.PermAll)[0]
	concealed := zk.ACL{Perms: zk.PermAll, Scheme: "digest", ID: "me:x"}
	for name, x := range map[string]struct {
		node, own []zk.ACL
		want      string
	}{
		"open, with credentials":              {zk.WorldACL(zk.PermAll), []zk.ACL{auth, world(zk.PermRead)}, "world:anyone:wcda"},
		"open, with a digest":                 {zk.WorldACL(zk.PermAll), []zk.ACL{me}, "world:anyone:wcda"},
		"open, as the participant's":          {zk.WorldACL(zk.PermAll), zk.WorldACL(zk.PermAll), ""},
		"open, participants may be created":   {zk.WorldACL(zk.PermAll), []zk.ACL{me, world(zk.PermRead | zk.PermCreate)}, "world:anyone:wda"},
		"readable":                            {[]zk.ACL{me, world(zk.PermRead)}, []zk.ACL{me}, ""},
		"others may create":                   {[]zk.ACL{me, world(zk.PermRead | zk.PermCreate)}, []zk.ACL{me}, "world:anyone:c"},
		"others may delete":                   {[]zk.ACL{me, world(zk.PermDelete)}, []zk.ACL{auth}, "world:anyone:d"},
		"others may write":                    {[]zk.ACL{me, world(zk.PermWrite)}, []zk.ACL{auth}, "world:anyone:w"},
		"others may administer":               {[]zk.ACL{me, world(zk.PermAdmin)}, []zk.ACL{auth}, "world:anyone:a"},
		"own, resolved by the servers":        {[]zk.ACL{me, world(zk.PermRead)}, []zk.ACL{auth, world(zk.PermRead)}, ""},
		"own, whose hash is concealed":        {[]zk.ACL{concealed}, []zk.ACL{me}, ""},
		"another user":                        {[]zk.ACL{me, mallory}, []zk.ACL{me}, "digest:" + mallory.ID + ":wcda"},
		"another user, own is not known":      {[]zk.ACL{me, mallory}, []zk.ACL{auth}, ""},
		"another user, concealed":             {[]zk.ACL{{Perms: zk.PermWrite, Scheme: "digest", ID: "mallory:x"}}, []zk.ACL{me}, "digest:mallory:x:w"},
		"own, with more permissions":          {[]zk.ACL{me}, []zk.ACL{{Perms: zk.PermRead | zk.PermCreate, Scheme: me.Scheme, ID: me.ID}}, "digest:" + me.ID + ":wda"},
		"addresses":                           {[]zk.ACL{me, ip}, []zk.ACL{auth}, "ip:10.0.0.0/8:wcda"},
		"addresses, as the participant's":     {[]zk.ACL{me, ip}, []zk.ACL{me, ip}, ""},
		"certificates, with credentials":      {[]zk.ACL{{Perms: zk.PermAll, Scheme: "x509", ID: "CN=a"}}, []zk.ACL{auth}, ""},
		"certificates, with a digest":         {[]zk.ACL{{Perms: zk.PermAll, Scheme: "x509", ID: "CN=a"}}, []zk.ACL{me}, "x509:CN=a:wcda"},
		"the same name with another scheme":   {[]zk.ACL{{Perms: zk.PermAll, Scheme: "sasl", ID: me.ID}}, []zk.ACL{me}, "sasl:" + me.ID + ":wcda"},
		"permissions in two entries":          {zk.WorldACL(zk.PermWrite | zk.PermCreate), []zk.ACL{world(zk.PermWrite), world(zk.PermCreate)}, ""},
		"no ACL":                              {nil, []zk.ACL{me}, ""},
		"participant that grants only a read": {zk.WorldACL(zk.PermRead), zk.WorldACL(zk.PermRead), ""},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, x.want, format(Others(x.node, x.own))) })
	}
}

// CheckStrict rejects an ACL with which there is nothing to check.
func TestCheckStrict(t *testing.T) {
	open, closed := zk.WorldACL(zk.PermAll), zk.AuthACL(zk.PermAll)
	require.ErrorIs(t, CheckStrict(open, true), ErrInvalid)
	require.NoError(t, CheckStrict(open, false))
	require.NoError(t, CheckStrict(closed, true))
}

func TestOpenError(t *testing.T) {
	err := error(&OpenError{"/the jobs", zk.WorldACL(zk.PermCreate), remedy("/the jobs", append(zk.AuthACL(zk.PermAll), zk.WorldACL(zk.PermRead)...))})
	require.ErrorIs(t, err, ErrPermission)
	require.EqualError(t, err, `not permitted: the ACL of /the jobs lets other clients change it (world:anyone:c): set it with zkCli.sh, as a client that may administer it: addauth digest USER:PASSWORD (those of the participants), and then setAcl "/the jobs" auth::rwcda,world:anyone:r`)
}
