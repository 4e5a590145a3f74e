package queue

import (
	"errors"
	"strings"

	"github.com/go-leaderelection/leaderelection/internal/zk/contender"
)

// startRename returns the input that asks for a name of another kind, with the same GUID and
// sequence number.
func (d *driver) startRename(r Rename) contender.Input {
	name, base := d.machine.Name(), d.cfg.Naming.Base()
	i := strings.LastIndex(name, base)
	if i < 0 {
		r.Done <- errors.New("the znode is of another kind now")
		return contender.Input{Kind: contender.ConnChanged}
	}
	d.rename = &r
	prefix, number := name[:i]+r.To.Base(), name[i+len(base):]
	return contender.Input{Kind: contender.Rename, Name: prefix + number, Prefix: prefix}
}
