package zktest

// SetVersion sets the version of a znode's data, as if it had been written so many
// times. After 2147483647 comes -2147483648; a request that expects version -1 is
// carried out at any version.
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
