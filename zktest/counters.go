package zktest

// SetVersion sets the version of a znode's data, as if it had been written that many
// times. 2147483647 is followed by -2147483648. A request that expects version -1 is
// applied at any version.
func (s *Server) SetVersion(path string, version int32) error {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	n := s.e.tree.nodes[path]
	if n == nil {
		return codeNoNode
	}
	n.version = version
	return nil
}

// SetSequence sets the sequence number of the next sequential child of parent. It returns
// "no node" if parent does not exist.
//
// The counter overflows after 2147483647 as on a 3.8 server: it repeats this number, but
// continues with -2147483648 within a multi. A real server also continues with
// -2147483648 while requests overlap, and releases before 3.6 always did; to test that,
// set n to -2147483648.
func (s *Server) SetSequence(parent string, n int32) error {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	p := s.e.tree.nodes[parent]
	if p == nil {
		return codeNoNode
	}
	if !s.e.closed {
		p.cversion = n
	}
	return nil
}
