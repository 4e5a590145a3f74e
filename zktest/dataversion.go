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
