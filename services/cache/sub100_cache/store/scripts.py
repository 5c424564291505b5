"""What must happen at once in Redis, in its own language. All keys of a call belong to one tenant.

Numbers are microseconds of the store's clock: below 2^53, so that Lua counts them exactly.
"""

from typing import Final

_NOW: Final = """
local function now()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end
local function digits(number) return string.format('%.0f', number) end
"""

ESTABLISH: Final = f"""{_NOW}
-- KEYS: record. ARGV: place, time to live of the record in ms.
if redis.call('HEXISTS', KEYS[1], 'gt') == 0 then
  redis.call('HSET', KEYS[1], 'gt', digits(now()), 'lt', ARGV[1])
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
"""

INVALIDATE: Final = f"""{_NOW}
-- KEYS: record. ARGV: target, before ('' for none), the log's identity, position (0 for none), 'replay' to do
-- nothing the second time, most marks, time to live of the record in ms.
local record, target, identity, position = KEYS[1], ARGV[1], ARGV[3], tonumber(ARGV[4])
local function read(field) return tonumber(redis.call('HGET', record, field) or '0') end
local function position_of(mark)
  -- In this log: the marks of another mean nothing.
  local life, number = string.match(mark or '', '^(%d+):(%d+)$')
  return life == identity and tonumber(number) or 0
end
local function mark(at) redis.call('HSET', record, 'l' .. at, identity .. ':' .. digits(position)) end
local function raise(at)
  -- 'n' is the greatest number ever given in this record.
  local number = math.max(now(), math.max(read('n'), read('gt')) + 1)
  redis.call('HSET', record, 'n', digits(number), 'g' .. at, digits(number))
end
if redis.call('HEXISTS', record, 'gt') == 0 then
  raise('t')
  mark('t')
end
local known = position_of(redis.call('HGET', record, 'l' .. target))
if ARGV[2] ~= '' then
  if tonumber(ARGV[2]) > read('b' .. target) then
    redis.call('HSET', record, 'b' .. target, ARGV[2])
  end
elseif ARGV[5] ~= 'replay' or position > known then
  raise(target)
  if position > known then mark(target) end
end
if redis.call('HLEN', record) > tonumber(ARGV[6]) then
  raise('t')
  local marks, number, before, last = redis.call('HGETALL', record), read('n'), 0, 0
  for i = 1, #marks, 2 do
    local kind = string.sub(marks[i], 1, 1)
    if kind == 'b' then before = math.max(before, tonumber(marks[i + 1])) end
    if kind == 'l' then last = math.max(last, position_of(marks[i + 1])) end
  end
  redis.call('DEL', record)
  redis.call('HSET', record, 'n', digits(number), 'gt', digits(number),
    'bt', string.format('%.6f', before), 'lt', identity .. ':' .. digits(last))
end
redis.call('PEXPIRE', record, ARGV[7])
"""

_LEDGER: Final = """
-- The ledger: a sorted set of digests by their end in ms, and a hash of their bytes, vector space and
-- wording, in which '#' is the sum of the bytes. KEYS: expiry, sizes. ARGV: beginning of the keys of entries,
-- of vectors, of wordings, tag.
local expiry, sizes, entries, vectors, wordings, tag = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local function forget(digest)
  local known = redis.call('HGET', sizes, digest)
  local num = redis.call('DEL', entries .. digest)
  redis.call('ZREM', expiry, digest)
  if known then
    local bytes, space, wording = string.match(known, '^(%d+) ?([^ ]*) ?(%x*)$')
    redis.call('HDEL', sizes, digest)
    redis.call('HINCRBY', sizes, '#', -tonumber(bytes))
    if space ~= '' then num = num + redis.call('DEL', vectors .. space .. ':' .. tag .. digest) end
    local alike = wordings .. tag .. wording  -- by now it may be another's
    if wording ~= '' and redis.pcall('GET', alike) == digest then num = num + redis.call('DEL', alike) end
  end
  return num
end
local function size()
  local num = redis.call('ZCARD', expiry)
  if num == 0 then redis.call('DEL', sizes) end  -- whatever it says: no error outlives the entries
  return num, tonumber(redis.call('HGET', sizes, '#') or '0')
end
"""

FORGET: Final = f"""{_LEDGER}
-- ARGV 5: 'gone' to forget only what has no entry any more; then digests.
local num = 0
for i = 6, #ARGV do
  if ARGV[5] ~= 'gone' or redis.call('EXISTS', entries .. ARGV[i]) == 0 then num = num + forget(ARGV[i]) end
end
size()
return num
"""

MAX_EVICTIONS: Final = 32
"""Of one write, and as many that have expired: more waits for the next write."""

WRITE: Final = f"""#!lua
-- (With this first line Redis runs it only while it has memory to write.)
{_NOW}{_LEDGER}
-- KEYS 3: record, 4: entry, 5: vector and 6: wording, if any. ARGV 5: number, 6: value, 7: time to live in
-- ms, 8: digest, 9: bytes, 10: vector space, 11: wording ('' for none), 12: most entries, 13: most bytes, 14:
-- time to live of the record in ms, not less than the entry's, 15: number of targets, the targets; then
-- fields and values of the vector.
local num_targets = tonumber(ARGV[15])
local standing = 0
for i = 1, num_targets do
  standing = math.max(standing, tonumber(redis.call('HGET', KEYS[3], 'g' .. ARGV[15 + i]) or '0'))
end
if standing ~= tonumber(ARGV[5]) then return 'overtaken' end

local now_ms = math.floor(now() / 1000)
local digest, bytes, max_bytes = ARGV[8], tonumber(ARGV[9]), tonumber(ARGV[13])
if bytes > max_bytes then return 'full' end
for _, each in ipairs(redis.call('ZRANGEBYSCORE', expiry, '-inf', now_ms, 'LIMIT', 0, {MAX_EVICTIONS})) do
  forget(each)
end
forget(digest)
for eviction = 0, {MAX_EVICTIONS} do
  local num_kept, kept_bytes = size()
  if num_kept < tonumber(ARGV[12]) and kept_bytes + bytes <= max_bytes then break end
  if eviction == {MAX_EVICTIONS} then return 'full' end
  forget(redis.call('ZRANGE', expiry, 0, 0)[1])
end

redis.call('SET', KEYS[4], ARGV[6], 'PX', ARGV[7])
redis.call('ZADD', expiry, now_ms + tonumber(ARGV[7]), digest)
redis.call('HSET', sizes, digest, ARGV[9] .. ' ' .. ARGV[10] .. ' ' .. ARGV[11])
redis.call('HINCRBY', sizes, '#', bytes)
local last = digits(tonumber(redis.call('ZRANGE', expiry, -1, -1, 'WITHSCORES')[2]))
redis.call('PEXPIREAT', expiry, last)
redis.call('PEXPIREAT', sizes, last)
redis.call('PEXPIRE', KEYS[3], ARGV[14])
if KEYS[5] then
  redis.call('HSET', KEYS[5], unpack(ARGV, 16 + num_targets))
  redis.call('PEXPIRE', KEYS[5], ARGV[7])
end
if KEYS[6] then redis.call('SET', KEYS[6], digest, 'PX', ARGV[7]) end
return 'stored'
"""
