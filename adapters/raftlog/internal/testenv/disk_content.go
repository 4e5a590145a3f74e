package testenv

const pageSize = 4096

type page [pageSize]byte

// content is the content of a file, divided into pages. A page that was allocated and not written is
// nil, so that it uses no memory.
type content struct {
	size  int64
	pages []*page
}

func (b *content) readAt(p []byte, off int64) int {
	if off >= b.size {
		return 0
	}
	p = p[:min(int64(len(p)), b.size-off)]
	for n := 0; n < len(p); {
		i, at := (off+int64(n))/pageSize, (off+int64(n))%pageSize
		part := p[n:min(len(p), n+int(pageSize-at))]
		if int(i) < len(b.pages) && b.pages[i] != nil {
			copy(part, b.pages[i][at:])
		} else {
			clear(part)
		}
		n += len(part)
	}
	return len(p)
}

func (b *content) writeAt(p []byte, off int64) {
	b.size = max(b.size, off+int64(len(p)))
	for len(p) > 0 {
		i, at := off/pageSize, off%pageSize
		for int(i) >= len(b.pages) {
			b.pages = append(b.pages, nil)
		}
		if b.pages[i] == nil {
			b.pages[i] = new(page)
		}
		n := copy(b.pages[i][at:], p)
		p, off = p[n:], off+int64(n)
	}
}

func (b *content) resize(size int64) {
	if size < b.size {
		if keep := int((size + pageSize - 1) / pageSize); keep < len(b.pages) {
			clear(b.pages[keep:])
			b.pages = b.pages[:keep]
		}
		if i := int(size / pageSize); i < len(b.pages) && b.pages[i] != nil {
			clear(b.pages[i][size%pageSize:])
		}
	}
	b.size = size
}

func (b *content) clone() content {
	c := content{b.size, make([]*page, len(b.pages))}
	for i, p := range b.pages {
		if p != nil {
			q := *p
			c.pages[i] = &q
		}
	}
	return c
}
