package entities

// CheckNames says that a version or a channel is unknown, or nil. Either may be empty. It needs no
// I/O, so that an update is validated before anything is written.
func (s *State) CheckNames(version, channel string) error {
	if version == "" {
		return s.checkChannel(channel)
	}
	_, err := s.find(version, channel)
	return err
}
