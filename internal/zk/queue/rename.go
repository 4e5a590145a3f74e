package queue

import (
	"errors"
	"strings"

	"github.com/go-leaderelection/leaderelection/internal/zk/contender"
)

// startRename returns the input for a rename to a name of another kind, with the same GUID and
// sequence number.
func (d *driver) startRename(r Rename) *frame {
	name, base := d.machine.Name(), d.cfg.Naming.Base()
	i := strings.LastIndex(name, base)
	if i < 0 {
		r.Done <- errors.New("the znode is of another kind now")
		return input(contender.ConnChanged)
	}
	d.rename = &r
	prefix, number := name[:i]+r.To.Base(), name[i+len(base):]
	f := input(contender.Rename)
	f.in.Name, f.in.Prefix = prefix+number, prefix
	return f
}
